/* Records commands: what a command is, what its arguments lead to, and what its memory holds. */
#include "record.h"

#include "operations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What the arguments of a command are. Q: queue. M: memory. k: kernel. n: number. 3: three sizes.
 * d: sizes of each dimension. p: a pattern, whose size follows. c: a colour. H: the host's memory
 * that is read. R: the host's memory that is written. u: what was mapped. s, t: addresses that are
 * read and written, of SVM or of the host's memory. m, v: SVM that is mapped and unmapped. W, L:
 * the events to wait for. E: the event. */
static const char *const forms[FL_SLOTS] = {
    FL_OPERATION_FORMS, /* of the table of operations */
    [SLOT_clEnqueueMapBuffer] = "QMnnnnWLEn",
    [SLOT_clEnqueueMapImage] = "QMnn33nnWLEn",
    [SLOT_clEnqueueUnmapMemObject] = "QMuWLE",
    [SLOT_clEnqueueMigrateMemObjects] = "QnnnWLE",
    [SLOT_clEnqueueSVMMap] = "QnnmnWLE",
    [SLOT_clEnqueueSVMUnmap] = "QvWLE",
    [SLOT_clEnqueueSVMFree] = "QnnnnWLE",
    [SLOT_clEnqueueSVMMigrateMem] = "QnnnnWLE",
    [SLOT_clEnqueueTask] = "QkWLE",
    [SLOT_clEnqueueMarker] = "QE",
    [SLOT_clEnqueueBarrier] = "Q",
    [SLOT_clEnqueueWaitForEvents] = "QWL",
};

/* Words of a COMMAND record behind its head: number, slot, queue, state, event or mapped pointer,
 * arguments, then those. Its pieces are the arguments' by position; those of kernels begin at 256,
 * and say of what kind they are in bits 16 and up. */
enum { NUMBER = 1, STATE = 4, EVENT = 5, ENQUEUED = 1, FAILED = 2, KERNEL_ARGUMENT = 256 };
enum { OF_VALUE, OF_LOCAL, OF_MEMORY, OF_SAMPLER, OF_NO_MEMORY, OF_SVM };
enum { LARGEST_PATTERN = 128 }; /* SPEC clEnqueueFillBuffer */
enum { MOST_USED = 1024, COMMAND_USER = 0x1204, FINE_GRAIN_BUFFER = 1 << 10, ATOMICS = 1 << 11 };

static bool is_between; /* the log knows that commands are left out */
static bool has_ended;  /* before the last command that is wanted */
static uint64_t next_number, recorded, epoch = 1;
static fl_record record;

/* The number of this thread's command, and its record while it is passed on. */
static __thread uint64_t number __attribute__((tls_model("initial-exec")));
static __thread uint64_t *running __attribute__((tls_model("initial-exec")));

/* --- the end, and what is between --- */

static void write_end(enum fl_record_end reason, uint64_t at, uint32_t slot, uint64_t detail,
                      const char *name) {
    fl_add_word(&record, reason);
    fl_add_word(&record, at);
    fl_add_word(&record, slot);
    fl_add_word(&record, detail);
    fl_add_piece(&record, 0, name, strlen(name));
    fl_write_record(&record, FL_R_END);
}

void fl_write_end(enum fl_record_end reason, uint32_t slot, uint64_t detail, const char *name) {
    write_end(reason, next_number, slot, detail, name);
}

static void end(enum fl_record_end reason, const fl_call *call, uint64_t detail, const char *name) {
    record.used = 0;
    write_end(reason, number, call->function, detail, name);
    fl_recorder.is_on = false;
    has_ended = true;
}

/* A command that is not recorded. Reads and places in the order change nothing. */
static void pass_over(const fl_call *call) {
    switch (call->function) {
    case SLOT_clEnqueueReadBuffer:
    case SLOT_clEnqueueReadBufferRect:
    case SLOT_clEnqueueReadImage:
    case SLOT_clEnqueueMapBuffer:
    case SLOT_clEnqueueMapImage:
    case SLOT_clEnqueueMarker:
    case SLOT_clEnqueueBarrier:
    case SLOT_clEnqueueWaitForEvents:
    case SLOT_clEnqueueMarkerWithWaitList:
    case SLOT_clEnqueueBarrierWithWaitList:
        break;
    default:
        epoch++;
    }
    if (recorded && !is_between)
        fl_write_record(&record, FL_R_GAP);
    is_between = true;
}

static fl_seen *kernel_of(const fl_call *call) {
    bool is_launch = call->function == SLOT_clEnqueueNDRangeKernel ||
        call->function == SLOT_clEnqueueTask;
    return is_launch ? fl_find(HANDLE(void *, call->arguments[1]), FL_K_KERNEL) : NULL;
}

/* Whether a command is one of those that are counted, and of which a range is recorded. */
static bool is_counted(const fl_call *call) {
    fl_seen *kernel = kernel_of(call);
    return !fl_recorder.only ||
        (kernel && kernel->name && strcmp(kernel->name, fl_recorder.only) == 0);
}

/* --- what a command uses --- */

static uint64_t word_of(const fl_argument *argument) {
    uint64_t word = 0;
    if (argument->has_value && argument->size == sizeof(void *))
        memcpy(&word, argument->value, sizeof(void *));
    return word;
}

static bool takes_memory(const fl_seen *kernel, uint32_t index) {
    uint32_t where = kernel->address_of[index];
    return where == CL_KERNEL_ARG_ADDRESS_GLOBAL || where == CL_KERNEL_ARG_ADDRESS_CONSTANT;
}

/* Whether all that a command must have is there. If not, the driver will refuse it. */
static bool is_complete(const fl_call *call, const char *form) {
    for (uint32_t i = 0; form[i] && i < call->count; i++) {
        bool is_list = form[i] == 'L' && call->arguments[i - 1];
        if (!call->arguments[i] && (is_list || strchr("QMk3pcHRustmv", form[i])))
            return false;
        if (form[i] == 'p' && call->arguments[i + 1] > LARGEST_PATTERN)
            return false;
    }
    return call->function != SLOT_clEnqueueNDRangeKernel ||
        (call->arguments[2] - 1 < 3 && call->arguments[4]);
}

/* The memory that an argument of a command names. */
static fl_seen *named_by(char form, const void *pointer) {
    if (form == 'M')
        return fl_find(pointer, FL_K_MEMORY);
    return strchr("stmv", form) ? fl_find_svm(pointer) : NULL;
}

/* The memory that an argument of a kernel is. */
static fl_seen *memory_of(const fl_argument *argument) {
    const void *word = HANDLE(void *, word_of(argument));
    return argument->is_svm ? fl_find_svm(word) : fl_find(word, FL_K_MEMORY);
}

/* The memory that a command uses. */
static size_t find_used(const fl_call *call, const char *form, fl_seen **used) {
    fl_seen *kernel = kernel_of(call);
    size_t count = 0;
    for (uint32_t i = 0; form[i] && i < call->count; i++)
        if ((used[count] = named_by(form[i], HANDLE(void *, call->arguments[i]))))
            count++;
    for (uint32_t i = 0; kernel && i < kernel->count && count < MOST_USED; i++)
        if ((used[count] = memory_of(&kernel->arguments[i])))
            count++;
    return count;
}

static bool waits_for_user(const fl_call *call, fl_table next, const char *form) {
    const char *at = strchr(form, 'W');
    uint64_t count = fl_recorder.unset > 0 && at ? call->arguments[at - form] : 0;
    void *const *events = count ? HANDLE(void **, call->arguments[at - form + 1]) : NULL;
    for (uint64_t i = 0; events && i < count; i++) {
        uint32_t kind = 0;
        int32_t status = 0;
        if (!events[i]) /* the driver will refuse it */
            continue;
        NEXT(next, clGetEventInfo)(events[i], CL_EVENT_COMMAND_TYPE, sizeof kind, &kind, NULL);
        NEXT(next, clGetEventInfo)(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                   &status, NULL);
        if (kind == COMMAND_USER && status > 0)
            return true;
    }
    return false;
}

/* Log the contents of memory that is used for the first time, or that other commands may have
 * changed. The lock is given back while the driver works: its callbacks may call OpenCL. */
static bool add_contents(const fl_call *call, fl_table next, fl_seen **used, size_t count) {
    cl_command_queue queue = HANDLE(cl_command_queue, call->arguments[0]);
    fl_seen *unknown[MOST_USED];
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        fl_seen *whole = used[i]->whole;
        bool is_known = whole->epoch == epoch && !(whole->flags & FINE_GRAIN_BUFFER);
        if (fl_recorder.wants_contents && !is_known && !fl_overwrites(call, whole))
            unknown[missing++] = whole;
        whole->epoch = epoch;
    }
    if (!missing)
        return true;
    if (fl_recorder.unset > 0) {
        end(FL_E_USER_EVENT, call, 0, "");
        return false;
    }
    cl_command_queue queues[256];
    size_t busy = 0;
    for (fl_seen *one = fl_each_queue(NULL); one && busy < 256; one = fl_each_queue(one))
        queues[busy++] = one->handle;
    uint64_t own = number; /* a callback of the driver's may enqueue in this thread */
    pthread_mutex_unlock(&fl_recorder.lock);
    for (size_t i = 0; i < busy; i++)
        NEXT(next, clFinish)(queues[i]);
    cl_int code = CL_SUCCESS;
    uint64_t numbers[MOST_USED] = {0};
    for (size_t i = 0; i < missing && !code; i++)
        code = fl_read_contents(next, queue, unknown[i], &numbers[i]);
    pthread_mutex_lock(&fl_recorder.lock);
    for (size_t i = 0; i < missing && !code; i++) {
        fl_add_word(&record, unknown[i]->serial);
        fl_add_word(&record, numbers[i]);
        fl_write_record(&record, FL_R_CONTENTS);
    }
    number = own;
    if (code && !has_ended)
        end(FL_E_CONTENTS, call, (uint32_t)code, "");
    return !code && !has_ended;
}

/* --- a command's record --- */

static void add_serial(uint32_t tag, const fl_seen *one) {
    fl_add_piece(&record, tag, &one->serial, sizeof one->serial);
}

/* A place within SVM, or 0 and bytes of the host's. */
static void add_place(uint32_t tag, const fl_seen *svm, const void *at, uint64_t data) {
    uint64_t words[] = {svm ? svm->serial : 0, svm ? WORD(at) - WORD(svm->handle) : 0, data};
    fl_add_piece(&record, tag, words, sizeof words);
}

/* Add the arguments of a kernel. Returns whether files can hold them. */
static bool add_kernel(const fl_call *call, fl_seen *kernel) {
    add_serial(1, kernel);
    for (uint32_t i = 0; i < kernel->count; i++) {
        const fl_argument *one = &kernel->arguments[i];
        const void *handle = HANDLE(void *, word_of(one));
        uint32_t tag = KERNEL_ARGUMENT + i;
        fl_seen *memory = handle ? memory_of(one) : NULL;
        fl_seen *sampler = handle && !one->is_svm ? fl_find(handle, FL_K_SAMPLER) : NULL;
        if (!one->is_set) {
            end(FL_E_UNSET, call, i, kernel->name);
            return false;
        }
        if (memory && one->is_svm) {
            add_place(tag | OF_SVM << 16, memory, handle, 0);
        } else if (one->is_svm && handle) { /* of no allocation that was seen */
            end(FL_E_SVM, call, i, kernel->name);
            return false;
        } else if (one->is_svm) {
            fl_add_piece(&record, tag | OF_NO_MEMORY << 16, "", 0);
        } else if (memory) {
            add_serial(tag | OF_MEMORY << 16, memory);
        } else if (sampler) {
            add_serial(tag | OF_SAMPLER << 16, sampler);
        } else if (takes_memory(kernel, i)) {
            if (handle) {
                end(FL_E_MEMORY, call, i, kernel->name);
                return false;
            }
            fl_add_piece(&record, tag | OF_NO_MEMORY << 16, "", 0);
        } else if (one->has_value) {
            fl_add_piece(&record, tag | OF_VALUE << 16, one->value, one->size);
        } else {
            fl_add_piece(&record, tag | OF_LOCAL << 16, &one->size, sizeof one->size);
        }
    }
    return true;
}

/* Add what was mapped, with its bytes if they may have been written. */
static bool add_mapped(const fl_call *call, const void *memory, const void *pointer) {
    fl_mapping *found = fl_take_mapping(memory, pointer);
    if (!found) {
        end(FL_E_MAPPED, call, 0, "");
        return false;
    }
    uint64_t values[10] = {found->flags};
    memcpy(values + 2, found->numbers, sizeof found->numbers);
    if (fl_recorder.wants_contents &&
        found->flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION))
        values[1] = fl_copy_data(found->pointer, found->bytes);
    fl_add_piece(&record, 2, values, sizeof values);
    free(found);
    return true;
}

static bool add_argument(const fl_call *call, const char *form, uint32_t i) {
    const uint64_t *a = call->arguments;
    const void *pointer = HANDLE(void *, a[i]);
    uint64_t data = 0;
    switch (form[i]) {
    case 'M':
        add_serial(i, fl_find(pointer, FL_K_MEMORY));
        break;
    case '3':
        fl_add_piece(&record, i, pointer, 3 * sizeof(size_t));
        break;
    case 'd':
        if (pointer)
            fl_add_piece(&record, i, pointer, a[2] * sizeof(size_t));
        break;
    case 'p':
        fl_add_piece(&record, i, pointer, a[i + 1]);
        break;
    case 'c':
        fl_add_piece(&record, i, pointer, 16);
        break;
    case 'H':
        if (fl_recorder.wants_contents)
            data = fl_copy_data(pointer, fl_host_bytes(call, fl_find(HANDLE(void *, a[1]),
                                                                     FL_K_MEMORY)));
        fl_add_piece(&record, i, &data, sizeof data);
        break;
    case 'u':
        return add_mapped(call, HANDLE(void *, a[1]), pointer);
    case 'v':
        add_place(i, fl_find_svm(pointer), pointer, 0);
        return add_mapped(call, fl_find_svm(pointer)->handle, pointer);
    case 'm':
    case 't':
        add_place(i, fl_find_svm(pointer), pointer, 0);
        break;
    case 's':
        if (!fl_find_svm(pointer) && fl_recorder.wants_contents)
            data = fl_copy_data(pointer, a[4]);
        add_place(i, fl_find_svm(pointer), pointer, data);
        break;
    case 'L':
        if (a[i - 1] && pointer)
            fl_add_piece(&record, i, pointer, a[i - 1] * sizeof(void *));
        break;
    default:
        break;
    }
    return true;
}

/* Note all objects of a command. Returns whether files can hold it. */
static bool note_objects(const fl_call *call, fl_table next, const char *form, fl_seen *kernel,
                         fl_seen **used,
                         size_t count) {
    if (kernel) {
        fl_note_kernel(next, kernel);
        for (uint32_t i = 0; i < kernel->count; i++) {
            fl_seen *sampler = fl_find(HANDLE(void *, word_of(&kernel->arguments[i])),
                                       FL_K_SAMPLER);
            if (sampler)
                fl_note_sampler(next, sampler);
        }
        if (kernel->refused) {
            fl_call made = {.function = kernel->refused};
            end(FL_E_CANNOT, &made, 0, kernel->name);
            return false;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (used[i]->flags & ATOMICS || !fl_note_memory(next, used[i])) {
            end(used[i]->flags & ATOMICS ? FL_E_SVM : FL_E_MEMORY, call, 0, "");
            return false;
        }
    for (uint32_t i = 0; form[i] && i < call->count; i++) {
        bool must_be_svm = strchr("mv", form[i]) ||
            (form[i] == 't' && call->function == SLOT_clEnqueueSVMMemFill);
        if ((must_be_svm || form[i] == 'M') &&
            !named_by(form[i], HANDLE(void *, call->arguments[i]))) {
            end(must_be_svm ? FL_E_SVM : FL_E_MEMORY, call, 0, "");
            return false;
        }
    }
    if (!kernel && strchr(form, 'k')) {
        end(FL_E_MEMORY, call, 0, "");
        return false;
    }
    return true;
}

static void record_command(const fl_call *call) {
    fl_table next = call->layer->next;
    const char *form = forms[call->function];
    fl_seen *used[MOST_USED + 8], *queue, *kernel = kernel_of(call);
    if (!form) {
        end(FL_E_CANNOT, call, 0, "");
        return;
    }
    if (!is_complete(call, form))
        return;
    if (waits_for_user(call, next, form)) {
        end(FL_E_USER_EVENT, call, 0, "");
        return;
    }
    queue = fl_find(HANDLE(void *, call->arguments[0]), FL_K_QUEUE);
    if (!queue) {
        end(FL_E_QUEUE, call, 0, "");
        return;
    }
    size_t count = find_used(call, form, used);
    if (!note_objects(call, next, form, kernel, used, count))
        return;
    if (strchr(form, 'H') && !fl_fits(call, used[0])) /* the driver will refuse it */
        return;
    fl_note_queue(next, queue);
    if (!add_contents(call, next, used, count))
        return;
    record.used = 0;
    fl_add_word(&record, number);
    fl_add_word(&record, call->function);
    fl_add_word(&record, queue->serial);
    fl_add_word(&record, 0);
    fl_add_word(&record, 0);
    fl_add_word(&record, call->count);
    for (uint32_t i = 0; i < call->count; i++)
        fl_add_word(&record, call->arguments[i]);
    for (uint32_t i = 0; i < call->count && form[i]; i++)
        if (!add_argument(call, form, i))
            return;
    if (kernel && !add_kernel(call, kernel))
        return;
    running = fl_write_record(&record, FL_R_COMMAND);
    recorded++, is_between = false;
}

void fl_begin_command(const fl_call *call) {
    running = NULL;
    bool counts = is_counted(call);
    number = next_number; /* taken at once, because `record_command` may give the lock back */
    next_number += counts;
    if (fl_recorder.is_on && counts && number >= fl_recorder.first && number <= fl_recorder.last)
        record_command(call);
    else if (fl_recorder.is_on)
        pass_over(call);
    if (next_number > fl_recorder.last)
        fl_recorder.is_on = false;
}

/* What the host waited for: a queue, or events. */
void fl_add_sync(uint64_t queue, const void *events, uint64_t count) {
    if (!recorded || !fl_recorder.is_on)
        return;
    fl_add_word(&record, queue);
    fl_add_piece(&record, 0, count ? events : "", count * sizeof(void *));
    fl_write_record(&record, FL_R_SYNC);
}

/* Log what a read gave the program, without gaps. Its queue is waited for, as a blocking read does.
 * The lock is given back while the driver works: its callbacks may call OpenCL. */
static void add_result(const fl_call *call, uint64_t own) {
    const uint64_t *a = call->arguments;
    const fl_seen *memory = fl_find(HANDLE(void *, a[1]), FL_K_MEMORY);
    const void *from = HANDLE(void *, a[5]);
    size_t bytes = a[4];
    if (call->function == SLOT_clEnqueueMapBuffer && a[3] & CL_MAP_READ)
        from = HANDLE(void *, call->result), bytes = a[5];
    else if (call->function == SLOT_clEnqueueSVMMap && a[2] & CL_MAP_READ)
        from = HANDLE(void *, a[3]), bytes = a[4];
    else if (call->function == SLOT_clEnqueueSVMMemcpy && !fl_find_svm(HANDLE(void *, a[2])))
        from = HANDLE(void *, a[2]), bytes = a[4];
    else if (call->function == SLOT_clEnqueueReadImage && memory && !a[5] && !a[6])
        from = HANDLE(void *, a[7]), bytes = fl_host_bytes(call, memory);
    else if (call->function != SLOT_clEnqueueReadBuffer)
        return;
    if (fl_recorder.unset > 0) /* it could wait for the program */
        return;
    pthread_mutex_unlock(&fl_recorder.lock);
    cl_int code = NEXT(call->layer->next, clFinish)(HANDLE(cl_command_queue, a[0]));
    pthread_mutex_lock(&fl_recorder.lock);
    if (code)
        return;
    fl_add_word(&record, own);
    fl_add_word(&record, fl_copy_data(from, bytes));
    fl_write_record(&record, FL_R_RESULT);
}

/* The command was enqueued, or not. */
void fl_end_command(const fl_call *call) {
    int place = call->layer->thunks->event_at[call->function];
    void **event = place >= 0 ? HANDLE(void **, call->arguments[place]) : NULL;
    bool maps = call->function == SLOT_clEnqueueMapBuffer ||
        call->function == SLOT_clEnqueueMapImage;
    bool failed = maps ? !call->result : (int32_t)call->result != 0;
    if (maps && !failed) {
        fl_seen *memory = fl_find(HANDLE(void *, call->arguments[1]), FL_K_MEMORY);
        if (memory && fl_note_memory(call->layer->next, memory))
            fl_add_mapping(call, memory, HANDLE(void *, call->result));
    }
    if (call->function == SLOT_clEnqueueSVMMap && !failed) {
        fl_seen *memory = fl_find_svm(HANDLE(void *, call->arguments[3]));
        if (memory)
            fl_add_mapping(call, memory, HANDLE(void *, call->arguments[3]));
    } else if (call->function == SLOT_clEnqueueSVMFree && !failed) {
        for (uint64_t i = 0; i < call->arguments[1]; i++)
            fl_forget_svm(HANDLE(void **, call->arguments[2])[i]);
    }
    if (!running)
        return;
    running[EVENT] = event && !failed ? WORD(*event) : 0;
    __atomic_store_n(&running[STATE], failed ? FAILED : ENQUEUED, __ATOMIC_RELEASE);
    if (!failed && fl_recorder.wants_results)
        add_result(call, running[NUMBER]);
}

bool fl_is_command(const fl_call *call) {
    return forms[call->function] || call->layer->thunks->event_at[call->function] >= 0;
}

void fl_begin_anew(void) {
    next_number = recorded = 0, is_between = false;
    epoch++;
}
