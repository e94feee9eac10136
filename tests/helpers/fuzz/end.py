"""The end of a sequence: everything is compared with the model and released in any order."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import sys
import threading
import time

from fairlead.plugins.opencl.core import adapter as the_adapter
from fairlead.plugins.sdk.objects import Object
from helpers.fuzz.library import Failure
from helpers.fuzz.model import (
    Buffer,
    CommandBuffer,
    Context,
    Device,
    Event,
    Kernel,
    Pool,
    Program,
    Queue,
    Storage,
    Usm,
)
from helpers.fuzz.world import PATIENCE, World


class Ending(World):
    """What is done when all steps are."""

    def teardown(self) -> None:
        if isinstance(
            sys.exc_info()[1], Exception
        ):  # of the rule before; what hypothesis itself raises is none
            self._give_up()
            return
        try:
            self._end()
        except BaseException:
            self._give_up()
            raise

    def _end(self) -> None:
        """Compare everything with the model, release everything, and see that nothing is left."""
        self._check_memory()
        for thing in self.things:
            self.check_references(thing)
        order = random.Random(len(self.library.lines))
        if order.random() < 0.1:
            self._shut()
        else:
            self._release_all(order)
        for _, called in self.callbacks:
            if not called.wait(PATIENCE):
                raise Failure("an event's callback was not called")
        self._nothing_left()

    def _check_memory(self) -> None:
        for storage in self.storages:
            if not storage.freed:
                self.settle(storage)
        self.unblock()
        for buffer in self.of(Buffer):
            if buffer.mapped:
                self.unmap(buffer)
                self.settle(buffer.storage)
        seen = set()
        for buffer in sorted(self.of(Buffer), key=lambda one: -one.size):
            if buffer.storage not in seen:
                seen.add(buffer.storage)
                self._check_buffer(buffer)
        for usm in self.allocations:
            self._check_usm(usm)

    def _check_buffer(self, buffer: Buffer) -> None:
        queue, into = self.queue_for(self.revive(buffer)), ctypes.create_string_buffer(buffer.size)
        given = {"hBuffer": buffer.handle, "blockingRead": True, "size": buffer.size, "pDst": into}
        self.library.ok("urEnqueueMemBufferRead", hQueue=queue.handle, **given)
        end = buffer.origin + buffer.size
        self.compare(Storage("buffer", buffer.storage.data[buffer.origin : end]), into.raw)

    def _check_usm(self, usm: Usm) -> None:
        queue, into = self.queue_for(usm.context), self.host.take(usm.size)
        given = {"blocking": True, "pDst": into, "pSrc": usm.address, "size": usm.size}
        self.library.ok("urEnqueueUSMMemcpy", hQueue=queue.handle, **given)
        self.compare(usm.storage, ctypes.string_at(into, usm.size))

    def _release_all(self, order: random.Random) -> None:
        """In any order, but for memory by address, of which the contexts are needed to free it."""
        for usm in list(self.allocations):
            self.free(usm)
        while things := [
            one for one in self.things if not (self.is_base(one) and one.references == 1)
        ]:
            thing = order.choice(things)
            for _ in range(thing.references - self.is_base(thing)):
                self.release(thing)
        for base in (self.program, self.context):
            self.things.remove(base)

    def _shut(self) -> None:
        """Release the adapter itself, which takes everything with it."""
        self.library.ok("urAdapterRelease", hAdapter=self.session.adapter)
        self.session.open()

    def _give_up(self) -> None:
        """After a failure: a clean floor for the next sequence, by whatever means."""
        self.session.failing = list(self.library.lines)
        for event in self.held:
            assert event.complete is not None
            event.complete()
        with contextlib.suppress(Exception):
            while self.library("urAdapterRelease", hAdapter=self.session.adapter) == "SUCCESS":
                pass
        self.session.open()

    def _nothing_left(self) -> None:
        """No object is alive but those that last: neither in the registry nor in Python."""
        deadline = time.monotonic() + PATIENCE
        while (left := self._left()) and time.monotonic() < deadline:
            threading.Event().wait(0.002)  # a driver's thread may be about to give something up
        if left:
            raise Failure(f"{len(left)} objects are left: {', '.join(sorted(left)[:10])}")

    def _left(self) -> list[str]:
        registry, known = the_adapter.registry, self.session.known
        assert registry is not None
        kinds = (Context, Queue, Event, Program, Kernel, Pool, CommandBuffer, Buffer, Device)
        left = [
            f"{type(thing).__name__} {handle:#x} with {thing.references} references"
            for kind in kinds
            for handle, thing in list(registry.list_owned(kind.type).items())
            if handle not in known and thing.counted
        ]
        if left or not self.session.check_all:
            return left
        gc.collect()
        python = {
            kind.type for kind in kinds if kind not in (Pool, Device)
        }  # a context keeps its devices' default pools
        last = [*self.session.lasting]
        last += [
            thing
            for kind in kinds
            for handle, thing in registry.list_owned(kind.type).items()
            if handle in known
        ]
        return [
            f"{type(thing).__name__} without a handle, in {_where(thing)}"
            for thing in gc.get_objects()
            if isinstance(thing, Object)
            and thing.counted
            and thing not in last
            and thing.type in python
        ]


def _where(thing: object) -> str:
    """What refers to an object that is left."""
    found = [
        one
        for one in gc.get_referrers(thing)
        if type(one).__name__ not in ("frame", "list_iterator")
    ]
    return ", ".join(sorted(str(type(one)) + str(one)[:200] for one in found))
