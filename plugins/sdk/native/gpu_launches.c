/* Updates of launches in command-buffers that are graphs of CUDA or HIP, and launches of graphs.
 *
 * A launch that can be updated stays with its command (fl_gpu_command), as the driver takes it. C
 * writes new arguments into it, and gives it to the driver. Python makes all other updates. It
 * reads what C has written first. */
#include "gpu_launches.h"

#include <stdlib.h>
#include <string.h>

typedef ur_exp_command_buffer_update_kernel_launch_desc_t update;
typedef int32_t set_parameters(uintptr_t executable, uintptr_t node, const void *parameters);
typedef int32_t launch_graph(uintptr_t executable, uintptr_t stream);
typedef int32_t synchronize(uintptr_t stream);

enum { LITTLE = 256, MOST = 1 << 16 };   /* bytes; updates, or arguments of one */

/* --- the driver --- */

bool fl_enter_gpu(const fl_gpu_device *d, fl_gpu_before *before) {
    uintptr_t context = 0;
    before->device = 0;
    int32_t code = d->is_device
                       ? ((int32_t (*)(int32_t *))fl_gpu_slot(d, d->current))(&before->device)
                       : ((int32_t (*)(uintptr_t *))fl_gpu_slot(d, d->current))(&context);
    before->other = (d->is_device ? (uintptr_t)before->device : context) != d->context;
    if (code || !before->other)
        return !code;
    void *enter = fl_gpu_slot(d, d->enter);
    return !(d->is_device ? ((int32_t (*)(int32_t))enter)((int32_t)d->context)
                          : ((int32_t (*)(uintptr_t))enter)(d->context));
}

void fl_leave_gpu(const fl_gpu_device *d, fl_gpu_before before) {
    uintptr_t context;
    if (before.other && d->is_device)
        ((int32_t (*)(int32_t))fl_gpu_slot(d, d->leave))(before.device);
    else if (before.other)
        ((int32_t (*)(uintptr_t *))fl_gpu_slot(d, d->leave))(&context);
}

/* --- updates --- */

static bool is_list(uint32_t count, const void *list) { return !count || (list && count <= MOST); }

/* Returns the command of an update that only has values and addresses, NULL for any other one. */
static fl_gpu_command *command_of(uint32_t adapter, const fl_gpu_graph *g, const update *u) {
    const uintptr_t *words =
        fl_get_state(adapter, u->hCommand, kind_ur_exp_command_buffer_command_handle_t);
    fl_gpu_command *c = words ? (fl_gpu_command *)words[STRUCT] : NULL;
    const struct handle *kernel = fl_find(u->hNewKernel, adapter, kind_ur_kernel_handle_t);
    bool is = c && c->graph == g && c->node && u->newWorkDim == c->launch.dim &&
              (!u->hNewKernel || (kernel && kernel->number == c->launch.kernel)) &&
              !u->pNewGlobalWorkOffset && !u->pNewGlobalWorkSize && !u->pNewLocalWorkSize &&
              !u->numNewMemObjArgs && is_list(u->numNewValueArgs, u->pNewValueArgList) &&
              is_list(u->numNewPointerArgs, u->pNewPointerArgList);
    return is ? c : NULL;
}

static uint32_t count_of(const update *u) { return u->numNewValueArgs + u->numNewPointerArgs; }

/* A new argument: where it is, and where the driver reads it. */
typedef struct argument {
    const void *from;
    void *to;
    uint32_t size;
} argument;

/* False: it is not of the present argument's kind and size. */
static bool find_argument(const fl_gpu_launch *l, const update *u, uint32_t number, argument *a) {
    static const uintptr_t null;
    uint32_t index, wanted = 0;
    if (number < u->numNewValueArgs) {
        const ur_exp_command_buffer_update_value_arg_desc_t *v = &u->pNewValueArgList[number];
        index = v->argIndex, a->from = (const void *)v->pNewValueArg;
        if (!a->from || !v->argSize || v->argSize >= FL_GPU_OTHER)
            return false;
        wanted = (uint32_t)v->argSize;
    } else {   /* the address of the pointer */
        const ur_exp_command_buffer_update_pointer_arg_desc_t *p =
            &u->pNewPointerArgList[number - u->numNewValueArgs];
        index = p->argIndex;
        a->from = p->pNewPointerArg ? (const void *)p->pNewPointerArg : &null;
    }
    if (index >= l->count || l->sizes[index] != wanted)
        return false;
    a->size = wanted ? wanted : sizeof(uintptr_t);
    a->to = l->values[index];
    return true;
}

/* Returns the bytes of all arguments, or -1 if Python has to make an update. */
static int64_t measure(uint32_t adapter, const fl_gpu_graph *g, uint32_t count, const update *u) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const fl_gpu_command *c = command_of(adapter, g, &u[i]);
        argument a;
        if (!c)
            return -1;
        for (uint32_t j = 0; j < count_of(&u[i]); j++) {
            if (!find_argument(&c->launch, &u[i], j, &a))
                return -1;
            bytes += a.size;
        }
    }
    return bytes;
}

static bool set(const fl_gpu_graph *g, const fl_gpu_command *c) {
    set_parameters *set_them = (set_parameters *)fl_gpu_slot(g->device, g->set);
    return !set_them(g->executable, c->node, c->launch.parameters);
}

/* Writes the arguments of an update. The old ones come to `old`. Returns their end. */
static char *write_new(const fl_gpu_command *c, const update *u, char *old) {
    argument a;
    for (uint32_t i = 0; i < count_of(u) && find_argument(&c->launch, u, i, &a); i++) {
        memcpy(old, a.to, a.size);
        memcpy(a.to, a.from, a.size);
        old += a.size;
    }
    return old;
}

/* The other way round. `old` is the end of the old ones. Returns where they begin. */
static char *write_old(const fl_gpu_command *c, const update *u, char *old) {
    argument a;
    for (uint32_t i = count_of(u); i-- && find_argument(&c->launch, u, i, &a);) {
        old -= a.size;
        memcpy(a.to, old, a.size);
    }
    return old;
}

/* If the driver refuses one, all are as before. */
static bool commit(uint32_t adapter, fl_gpu_graph *g, uint32_t count, const update *u, char *old) {
    uint32_t i = 0;
    bool good = true;
    for (; good && i < count; i++) {
        fl_gpu_command *c = command_of(adapter, g, &u[i]);
        old = write_new(c, &u[i], old);
        good = set(g, c);
        c->changed |= good;
    }
    while (!good && i--) {
        const fl_gpu_command *c = command_of(adapter, g, &u[i]);
        old = write_old(c, &u[i], old);
        set(g, c);
    }
    return good;
}

static bool update_all(uint32_t adapter, fl_gpu_graph *g, uint32_t count, const update *u) {
    char little[LITTLE], *old = little;
    int64_t bytes = g->is_updatable && g->executable ? measure(adapter, g, count, u) : -1;
    if (bytes > LITTLE)
        old = malloc((size_t)bytes);
    fl_gpu_before before;
    bool done = bytes >= 0 && old && fl_enter_gpu(g->device, &before);
    if (done) {
        done = commit(adapter, g, count, u, old);
        fl_leave_gpu(g->device, before);
    }
    if (old != little)
        free(old);
    return done;
}

static bool update_locked(uint32_t adapter, fl_gpu_graph *g, uint32_t count, const update *u) {
    if (!fl_try_lock(&g->lock))
        return false;
    void *gil = fl_let_gil_go();
    bool done = update_all(adapter, g, count, u);
    fl_leave_lock(&g->lock);
    fl_take_gil(gil);
    return done;
}

bool fl_update_gpu_graph(uint32_t adapter, uintptr_t buffer, uint32_t count, const update *u) {
    enum { BUFFER = kind_ur_exp_command_buffer_handle_t };
    const uintptr_t *words = fl_get_state(adapter, buffer, BUFFER);
    if (!words || !words[STRUCT] || !count || count > MOST || !u ||
        !fl_hold(adapter, buffer, BUFFER))
        return false;
    bool done = update_locked(adapter, (fl_gpu_graph *)words[STRUCT], count, u);
    fl_let_go(adapter, buffer, BUFFER);
    return done;
}

/* --- launches --- */

/* Both locks are this thread's. */
static bool launch(const fl_gpu_graph *g, const fl_gpu_queue *q) {
    fl_gpu_before before;
    bool can = g->is_plain && q->stream && q->owner == g->owner && q->device == g->device;
    if (!can || !fl_enter_gpu(g->device, &before))
        return false;
    launch_graph *launch_it = (launch_graph *)fl_gpu_slot(g->device, g->launch);
    bool done = !launch_it(g->executable, q->stream);
    fl_leave_gpu(g->device, before);
    return done;
}

static bool launch_alone(fl_gpu_graph *g, fl_gpu_queue *q) {
    bool done = false;
    if (!fl_try_lock(&g->lock))
        return false;
    if (fl_try_lock(&q->lock)) {
        done = launch(g, q);
        fl_leave_lock(&q->lock);
    }
    fl_leave_lock(&g->lock);
    return done;
}

int32_t fl_urEnqueueCommandBufferExp(PARAMETERS_urEnqueueCommandBufferExp) {
    enum { QUEUE = kind_ur_queue_handle_t, BUFFER = kind_ur_exp_command_buffer_handle_t };
    if (numEventsInWaitList || phEventWaitList || phEvent)
        return FL_TO_PYTHON;
    const uintptr_t *buffer = fl_hold(adapter, hCommandBuffer, BUFFER);
    const uintptr_t *queue = buffer && buffer[STRUCT] ? fl_hold(adapter, hQueue, QUEUE) : NULL;
    bool done = queue && queue[THIRD] &&
                launch_alone((fl_gpu_graph *)buffer[STRUCT], (fl_gpu_queue *)queue[THIRD]);
    if (queue)
        fl_let_go(adapter, hQueue, QUEUE);
    if (buffer)
        fl_let_go(adapter, hCommandBuffer, BUFFER);
    return done ? 0 : FL_TO_PYTHON;
}

static bool finish(fl_gpu_queue *q) {
    fl_gpu_before before;
    if (!fl_try_lock(&q->lock))
        return false;
    uintptr_t stream = q->stream;
    fl_leave_lock(&q->lock);
    if (!stream || !fl_enter_gpu(q->device, &before))
        return false;
    bool done = !((synchronize *)fl_gpu_slot(q->device, q->synchronize))(stream);
    fl_leave_gpu(q->device, before);
    return done;
}

bool fl_finish_gpu_queue(uint32_t adapter, uintptr_t queue) {
    const uintptr_t *words = fl_hold(adapter, queue, kind_ur_queue_handle_t);
    if (!words)
        return false;
    bool done = words[THIRD] && finish((fl_gpu_queue *)words[THIRD]);
    fl_let_go(adapter, queue, kind_ur_queue_handle_t);
    return done;
}
