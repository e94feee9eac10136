"""The program of a Python process that forks children which need not import again.

helpers/children.py runs it as `python -c TEXT DESCRIPTOR MODULE...`. It imports the modules. Then
it answers requests at the socket: it forks, and the child runs the request's code as `python -c`
does, to the end of its interpreter. The answer is the child's number, and when it has ended its
exit code.

To take an interpreter down costs as much as all that most children do. A request may ask for a
`short` end. Then a child that went well runs the functions of atexit, drops its globals, and ends
as a C program does.

Unless a request asks for a `whole` end, the interpreter does not take down the modules of other
projects that the server has imported. It would copy the pages of all their objects first.

Every child releases what its globals hold. Intel's driver crashes at the end of a process that has
an out-of-order queue on which commands run. So the code gets a module of its own: this one's
dictionary is frozen, and cycles through it are never collected.
"""


def _serve():
    import atexit
    import ctypes
    import gc
    import importlib
    import json
    import os
    import socket
    import sys
    import threading
    import types

    @atexit.register  # the first one is called last
    def keep_modules():
        if not request["whole"]:
            for name, module in theirs.items():
                if sys.modules.get(name) is module:
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules.pop(name)))

    server = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    ours = "fairlead", "__main__", "builtins", "sys"
    theirs = {
        name: module for name, module in sys.modules.items() if name.partition(".")[0] not in ours
    }
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    while True:
        data, pipes, _, _ = socket.recv_fds(server, 8, 2)
        if not data:
            os._exit(0)
        data += server.recv(8 - len(data), socket.MSG_WAITALL)
        request = json.loads(server.recv(int.from_bytes(data, "little"), socket.MSG_WAITALL))
        child = os.fork()
        if not child:
            break
        for pipe in pipes:
            os.close(pipe)
        server.sendall(b"%d\n" % child)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        server.sendall(b"%d\n" % code)
    # Python leaves the parent's number
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    server.close()
    for number, pipe in enumerate(pipes, 1):
        os.dup2(pipe, number)
        os.close(pipe)
    helpers = request["environ"].get("PYTHONPATH")
    if helpers and "PYTHONPATH" not in os.environ:
        sys.path.insert(1, helpers)
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv[1:] = request["arguments"]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    code = 0
    try:
        exec(compile(request["code"], "<string>", "exec", dont_inherit=True), main.__dict__)
    except SystemExit as end:
        code = 0 if end.code is None else end.code
        if not request["short"]:
            raise
    # A thread would go on. Only an interpreter prints an exit code that is not a number.
    if request["short"] and threading.active_count() == 1 and type(code) is int:
        atexit._run_exitfuncs()
        main.__dict__.clear()
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).exit(code)
    if code:
        sys.exit(code)


_serve()
