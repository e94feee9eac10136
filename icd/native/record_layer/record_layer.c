/* libfairlead_record.so: an OpenCL layer that writes down what any program enqueues, for a graph
 * file. There is no Python in it.
 *
 * Before a command is passed on, a record of it goes into the log (spool.c): the arguments, what
 * they lead to, and the host memory that is written. A command's memory objects are read before the
 * first command that uses them. They are read again if commands that are not recorded came between.
 * So the log has everything that the commands depend on. icd/record_layer.py reads it.
 *
 * Variables: FAIRLEAD_RECORD is the folder for the log. FAIRLEAD_RECORD_FROM and _TO are the
 * numbers of the first and last command. Of _KERNEL alone the launches count. _CONTENTS "0" leaves
 contents
 * out. Without FAIRLEAD_RECORD nothing is in the program's way. */
#define _GNU_SOURCE
#include "record.h"

#include "../../../loader/base/native/native.h"
#include "../opencl_layer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const char fl_layer_name[] = "fairlead record";

fl_recorder_state fl_recorder = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { SVM_PTRS = 0x11B6, SVM_FINE_GRAIN_SYSTEM = 0x11B7 };

/* --- the handlers --- */

/* Which functions make objects, and of what kind. */
static const uint8_t made_by[FL_SLOTS] = {
    [SLOT_clCreateBuffer] = FL_K_MEMORY,
    [SLOT_clCreateBufferWithProperties] = FL_K_MEMORY,
    [SLOT_clCreateSubBuffer] = FL_K_MEMORY,
    [SLOT_clCreateImage] = FL_K_MEMORY,
    [SLOT_clCreateImageWithProperties] = FL_K_MEMORY,
    [SLOT_clCreateImage2D] = FL_K_MEMORY,
    [SLOT_clCreateImage3D] = FL_K_MEMORY,
    [SLOT_clCreatePipe] = FL_K_MEMORY,
    [SLOT_clCreateSampler] = FL_K_SAMPLER,
    [SLOT_clCreateSamplerWithProperties] = FL_K_SAMPLER,
    [SLOT_clCreateProgramWithSource] = FL_K_PROGRAM,
    [SLOT_clCreateProgramWithBinary] = FL_K_PROGRAM,
    [SLOT_clCreateProgramWithBuiltInKernels] = FL_K_PROGRAM,
    [SLOT_clCreateProgramWithIL] = FL_K_PROGRAM,
    [SLOT_clLinkProgram] = FL_K_PROGRAM,
    [SLOT_clCreateCommandQueue] = FL_K_QUEUE,
    [SLOT_clCreateCommandQueueWithProperties] = FL_K_QUEUE,
    [SLOT_clCreateKernel] = FL_K_KERNEL,
    [SLOT_clCloneKernel] = FL_K_KERNEL,
    [SLOT_clCreateUserEvent] = FL_K_EVENT,
    [SLOT_clSVMAlloc] = FL_K_SVM,
    [SLOT_clGetExtensionFunctionAddress] = FL_K_FUNCTION,
    [SLOT_clGetExtensionFunctionAddressForPlatform] = FL_K_FUNCTION,
};

static int before(fl_call *call) {
    int error = errno;
    pthread_mutex_lock(&fl_recorder.lock);
    if (fl_is_command(call))
        fl_begin_command(call);
    else if (call->function == SLOT_clReleaseCommandQueue &&
             fl_find(HANDLE(void *, call->arguments[0]), FL_K_QUEUE)) /* we keep it: flush it */
        NEXT(call->layer->next, clFlush)(HANDLE(cl_command_queue, call->arguments[0]));
    else if (call->function == SLOT_clSVMFree)
        fl_forget_svm(HANDLE(void *, call->arguments[1]));
    else if (call->function == SLOT_clSetUserEventStatus)
        fl_recorder.unset--;
    pthread_mutex_unlock(&fl_recorder.lock);
    errno = error;
    return 0;
}

static void new_kernel(const fl_call *call, void *handle, const void *copied) {
    fl_seen *made = handle ? fl_see(handle, FL_K_KERNEL) : NULL;
    const fl_seen *from = copied ? fl_find(copied, FL_K_KERNEL) : NULL;
    if (made)
        fl_note_kernel(call->layer->next, made);
    if (made && from)
        fl_copy_arguments(made, from);
}

/* Calls that succeeded and return a code. */
static void note_call(const fl_call *call) {
    const uint64_t *a = call->arguments;
    void *object = HANDLE(void *, a[0]);
    fl_seen *kernel, *program;
    size_t count = 0;
    switch (call->function) {
    case SLOT_clSetKernelArg:
    case SLOT_clSetKernelArgSVMPointer: {
        bool is_svm = call->function == SLOT_clSetKernelArgSVMPointer;
        kernel = fl_find(object, FL_K_KERNEL);
        if (kernel)
            fl_set_argument(kernel, (uint32_t)a[1], is_svm ? sizeof *a : a[2],
                            is_svm ? (const void *)&a[2] : HANDLE(void *, a[3]), is_svm);
        break;
    }
    case SLOT_clSetKernelExecInfo:
        if ((kernel = fl_find(object, FL_K_KERNEL)) &&
            ((uint32_t)a[1] == SVM_PTRS || (uint32_t)a[1] == SVM_FINE_GRAIN_SYSTEM))
            kernel->refused = call->function;
        break;
    case SLOT_clSetProgramSpecializationConstant:
        if ((program = fl_find(object, FL_K_PROGRAM)))
            program->refused = call->function;
        break;
    case SLOT_clBuildProgram: /* perhaps with other options */
        if ((program = fl_find(object, FL_K_PROGRAM)))
            program->is_noted = false;
        break;
    case SLOT_clCreateKernelsInProgram: /* there may be room for more than the program has */
        NEXT(call->layer->next, clGetProgramInfo)
        (object, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL);
        for (uint64_t i = 0; a[2] && i < a[1] && i < count; i++)
            new_kernel(call, HANDLE(void **, a[2])[i], NULL);
        break;
    case SLOT_clFinish: {
        fl_seen *queue = fl_find(object, FL_K_QUEUE);
        if (queue)
            fl_add_sync(queue->serial, NULL, 0);
        break;
    }
    case SLOT_clWaitForEvents:
        fl_add_sync(0, HANDLE(void *, a[1]), a[0]);
        break;
    case SLOT_clGetEventInfo:
        if ((uint32_t)a[1] != CL_EVENT_COMMAND_EXECUTION_STATUS || !a[3] || *HANDLE(int32_t *,
                                                                                    a[3]) != 0)
            break;
        fl_add_sync(0, &object, 1);
        break;
    case SLOT_clSetEventCallback: /* who knows what the program does when it is called */
        fl_add_sync(0, &object, 1);
        break;
    default:
        break;
    }
}

/* The program has another object, or a function of an extension. */
static void note_object(const fl_call *call, enum fl_kind kind) {
    void *made = HANDLE(void *, call->result);
    if (kind == FL_K_KERNEL) {
        bool is_copy = call->function == SLOT_clCloneKernel;
        new_kernel(call, made, is_copy ? HANDLE(void *, call->arguments[0]) : NULL);
    } else if (kind == FL_K_EVENT) {
        fl_recorder.unset++;
    } else if (kind == FL_K_SVM) {
        fl_see_svm(made, call->arguments[1], call->arguments[2]);
    } else if (kind == FL_K_FUNCTION) {
        const char *name = HANDLE(char *, call->arguments[call->count - 1]);
        if (!strncmp(name, "clEnqueue", 9) || !strncmp(name, "clCommand", 9))
            fl_write_end(FL_E_EXTENSION, call->function, 0, name);
    } else {
        bool is_seen = fl_see(made, kind);
        if (is_seen && kind == FL_K_QUEUE) /* to wait for it, whenever the program releases it */
            NEXT(call->layer->next, clRetainCommandQueue)(made);
    }
}

static void after(fl_call *call) {
    int error = errno;
    enum fl_kind kind = made_by[call->function];
    pthread_mutex_lock(&fl_recorder.lock);
    if (fl_is_command(call))
        fl_end_command(call);
    else if (kind && call->result)
        note_object(call, kind);
    else if (!kind && !(int32_t)call->result)
        note_call(call);
    else if (call->function == SLOT_clSetUserEventStatus) /* it is as if it had not been called */
        fl_recorder.unset++;
    pthread_mutex_unlock(&fl_recorder.lock);
    errno = error;
}

/* --- the start --- */

/* A forked child has a recording of its own. */
static void begin_again(void) {
    pthread_mutex_init(&fl_recorder.lock, NULL);
    fl_reset_log();
    fl_forget_notes();
    fl_begin_anew();
}

static uint64_t number_in(const char *variable, uint64_t otherwise) {
    const char *text = secure_getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

bool fl_layer_is_wanted(void) {
    static bool is_asked;
    const char *folder = secure_getenv("FAIRLEAD_RECORD"),
        *kernel = secure_getenv("FAIRLEAD_RECORD_KERNEL");
    if (is_asked)
        return fl_recorder.is_on;
    is_asked = true;
    if (!folder || !*folder || !fl_open_log(folder))
        return false;
    fl_recorder.first = number_in("FAIRLEAD_RECORD_FROM", 0);
    fl_recorder.last = number_in("FAIRLEAD_RECORD_TO", UINT64_MAX);
    fl_recorder.wants_contents = number_in("FAIRLEAD_RECORD_CONTENTS", 1) != 0;
    fl_recorder.wants_results = number_in("FAIRLEAD_RECORD_CONTENTS", 1) > 1;
    if (kernel && *kernel && !(fl_recorder.only = strdup(kernel)))
        return false;
    pthread_atfork(NULL, NULL, begin_again);
    return fl_recorder.is_on = true;
}

void fl_begin_layer(fl_layer *layer) { fl_set_handlers(layer, before, after); }
