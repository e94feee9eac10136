/* Scenarios of graphs of CUDA and HIP in C (gpu_appends.c, gpu_launches.c), with a driver of a few
 * functions. */
#include "world.h"

#include "gpu_launches.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* --- the driver --- */

enum { CURRENT, ENTER, LEAVE, ADD, SET, LAUNCH, SYNCHRONIZE, REMOVE_EDGE, ADD_EDGE, FUNCTIONS };
enum {
    CONTEXT = 70,
    OTHER = 71,
    GRAPH = 80,
    EXECUTABLE = 81,
    STREAM = 90,
    NODES = 100,
    REFUSES = 1
};
enum { OWNER = 5, SECOND = 12, LARGE = 400 };

/* What the driver reads of a node. The order and the sizes of these are the adapter's own business.
 */
typedef struct parameters {
    void *const *values;
} parameters;

typedef struct gpu {
    uintptr_t pushed[2];
    uint32_t depth;
    int32_t device;
    atomic_int launches, waits, sets;
    uint32_t added, after[4], after_count;
    int fails_at[FUNCTIONS];         /* the call that is refused, from 1 */
    bool loses;                      /* the call that adds an edge after that is refused, too */
    char edges[16];                  /* of the edge to each node: "n"ormal, "e"arly, "-" for none */
    /* By the number of the node: what it was given last. */
    struct {
        uintptr_t address;
        int32_t number;
    } given[16];
} gpu;
static gpu the;

static bool refuses(int function) { return the.fails_at[function] && !--the.fails_at[function]; }

static bool in_context(void) { return the.depth && the.pushed[the.depth - 1] == CONTEXT; }

static int32_t get_context(uintptr_t *context) {
    *context = the.depth ? the.pushed[the.depth - 1] : 0;
    return refuses(CURRENT);
}

static int32_t push(uintptr_t context) {
    CHECK(the.depth < 2);
    the.pushed[the.depth++] = context;
    return 0;
}

static int32_t pop(uintptr_t *context) {
    CHECK(the.depth);
    *context = the.pushed[--the.depth];
    return 0;
}

static int32_t get_device(int32_t *device) { return *device = the.device, refuses(CURRENT); }
static int32_t set_device(int32_t device) { return the.device = device, 0; }

static void read_node(uintptr_t node, const parameters *p) {
    memcpy(&the.given[node - NODES].address, p->values[0], sizeof(uintptr_t));
    memcpy(&the.given[node - NODES].number, p->values[1], sizeof(int32_t));
}

static int32_t add_node(uintptr_t *node, uintptr_t graph, const uintptr_t *after, size_t count,
                        const void *p) {
    CHECK(graph == GRAPH && in_context());
    if (refuses(ADD))
        return REFUSES;
    the.after_count = (uint32_t)count;
    for (size_t i = 0; i < count && i < 4; i++)
        the.after[i] = (uint32_t)after[i];
    the.edges[the.added] = count ? 'n' : '-';
    read_node(*node = NODES + the.added++, p);
    return 0;
}

static int32_t set_node(uintptr_t executable, uintptr_t node, const void *p) {
    CHECK(executable == EXECUTABLE && (in_context() || the.device == CONTEXT));
    the.sets++;
    if (refuses(SET))
        return REFUSES;
    read_node(node, p);
    return 0;
}

static int32_t launch(uintptr_t executable, uintptr_t stream) {
    CHECK(executable == EXECUTABLE && stream == STREAM);
    if (refuses(LAUNCH))
        return REFUSES;
    the.launches++;
    return 0;
}

static int32_t synchronize(uintptr_t stream) {
    CHECK(stream == STREAM);
    if (refuses(SYNCHRONIZE))
        return REFUSES;
    the.waits++;
    return 0;
}

typedef struct edge_data {
    uint8_t from_port, to_port, type, reserved[5];
} edge_data;

static int32_t remove_edge(uintptr_t graph, const uintptr_t *from, const uintptr_t *to,
                           const edge_data *data, size_t count) {
    CHECK(graph == GRAPH && count == 1 && in_context() && *to == *from + 1);
    if (refuses(REMOVE_EDGE))
        return REFUSES;
    CHECK(the.edges[*to - NODES] == (data->type ? 'e' : 'n') && data->from_port == data->type);
    the.edges[*to - NODES] = '-';
    return 0;
}

static int32_t add_edge(uintptr_t graph, const uintptr_t *from, const uintptr_t *to,
                        const edge_data *data, size_t count) {
    CHECK(graph == GRAPH && count == 1 && in_context() && *to == *from + 1);
    CHECK(the.edges[*to - NODES] == '-');
    if (refuses(ADD_EDGE)) {
        the.fails_at[ADD_EDGE] = the.loses;
        return REFUSES;
    }
    the.edges[*to - NODES] = data->type ? 'e' : 'n';
    return 0;
}

/* --- what Python would have made --- */

static void *functions[FUNCTIONS] = {(void *)get_context, (void *)push,     (void *)pop,
                                     (void *)add_node,    (void *)set_node, (void *)launch,
                                     (void *)synchronize, (void *)remove_edge, (void *)add_edge};
static void *const *table = functions;

typedef struct launched {
    uintptr_t address;
    int32_t number;
    char large[LARGE];
    void *values[4];
    parameters given;
    fl_gpu_command command;
    uintptr_t handle;
} launched;

typedef struct objects {
    fl_gpu_device device;
    fl_gpu_graph graph;
    fl_gpu_queue queue;
    launched one, two;
    uintptr_t graph_h, queue_h, kernel_h;
} objects;

static void describe(launched *l, fl_gpu_launch *launch, uint64_t kernel) {
    l->values[0] = &l->address, l->values[1] = &l->number, l->values[2] = l->large;
    l->given.values = l->values;
    *launch = (fl_gpu_launch){.kernel = kernel,
                              .dim = 1,
                              .count = 3,
                              .size = {64},
                              .sizes = {0, 4, LARGE},
                              .values = l->values,
                              .parameters = &l->given};
}

static void begin_objects(objects *o, uint32_t device) {
    memset(&the, 0, sizeof the);
    memset(o, 0, sizeof *o);
    o->device = (fl_gpu_device){&table, CURRENT, ENTER, LEAVE, 0, device};
    o->graph = (fl_gpu_graph){.device = &o->device,
                              .add = ADD,
                              .set = SET,
                              .launch = LAUNCH,
                              .owner = OWNER,
                              .graph = GRAPH,
                              .executable = EXECUTABLE,
                              .remove_edge = REMOVE_EDGE,
                              .add_edge = ADD_EDGE,
                              .in_order = 1,
                              .is_open = 1,
                              .is_updatable = 1,
                              .is_plain = 1};
    o->queue = (fl_gpu_queue){
        .device = &o->device, .synchronize = SYNCHRONIZE, .owner = OWNER, .stream = STREAM};
    o->graph_h = new_handle(kind_ur_exp_command_buffer_handle_t, 1, 0, (uintptr_t)&o->graph, 0, 0);
    o->queue_h = new_handle(kind_ur_queue_handle_t, 1, 0, 0, (uintptr_t)&o->queue, 0);
    o->kernel_h = new_handle(kind_ur_kernel_handle_t, 1, 0, 0, 0, 0);
    uint64_t kernel = ((fl_handle *)o->kernel_h)->number;
    for (int i = 0; i < 2; i++) {
        launched *l = i ? &o->two : &o->one;
        l->command =
            (fl_gpu_command){.graph = &o->graph, .node = (uintptr_t)NODES + (i ? SECOND : 0)};
        describe(l, &l->command.launch, kernel);
        l->handle = new_handle(kind_ur_exp_command_buffer_command_handle_t, FL_FIXED, 0,
                               (uintptr_t)&l->command, 0, 0);
    }
}

static void end_objects(objects *o) {
    EQUAL(the.depth, 0);
    fl_end(o->one.handle);
    fl_end(o->two.handle);
    end_handle(o->graph_h);
    end_handle(o->queue_h);
    end_handle(o->kernel_h);
    fl_free_gpu_graph(&o->graph);
}

/* --- appends --- */

typedef ur_exp_kernel_arg_properties_t row;

static int32_t append(objects *o, uintptr_t address, int32_t number, uint32_t count,
                      const uint32_t *points, uint32_t *point) {
    static const char large[LARGE];
    static const size_t size = 64;
    row rows[3] = {{.index = 2, .type = UR_EXP_KERNEL_ARG_TYPE_VALUE, .size = LARGE},
                   {.index = 0, .type = UR_EXP_KERNEL_ARG_TYPE_POINTER},
                   {.index = 1, .type = UR_EXP_KERNEL_ARG_TYPE_VALUE, .size = 4}};
    rows[0].value.value = (uintptr_t)large, rows[1].value.pointer = address,
    rows[2].value.value = (uintptr_t)&number;
    return fl_urCommandBufferAppendKernelLaunchWithArgsExp(
        ADAPTER, o->graph_h, o->kernel_h, 1, NULL, &size, NULL, 3, rows, 0, NULL, count, points, 0,
        NULL, point, NULL, NULL);
}

void gpu_appends(world *w) {
    objects o;
    uint32_t point = 0;
    begin_objects(&o, CONTEXT);
    TO_PYTHON(append(&o, 1, 2, 0, NULL, &point));   /* Python has appended none like it */
    describe(&o.one, &o.graph.launches[3], ((fl_handle *)o.kernel_h)->number);
    for (uint32_t i = 0; i < 10; i++) {
        OK(append(&o, 1000 + i, (int32_t)i, 0, NULL, &point));
        EQUAL(point, i + 1);
        EQUAL(the.after_count, i ? 1 : 0);
        CHECK(!i || the.after[0] == NODES + i - 1);
        CHECK(the.given[i].address == 1000 + i && the.given[i].number == (int32_t)i);
    }
    o.graph.in_order = 0;
    const uint32_t points[] = {1, 3, 1}, last[] = {11}, beyond[] = {12}, none[] = {0};
    OK(append(&o, 1, 2, 3, points, &point));
    CHECK(the.after_count == 1 && the.after[0] == NODES + 2);   /* that one comes after the first */
    TO_PYTHON(append(&o, 1, 2, 1, beyond, &point));
    TO_PYTHON(append(&o, 1, 2, 1, none, &point));
    OK(append(&o, 1, 2, 1, last, NULL));
    the.fails_at[ADD] = 1;
    TO_PYTHON(append(&o, 1, 2, 0, NULL, &point));
    the.fails_at[CURRENT] = 1;
    TO_PYTHON(append(&o, 1, 2, 0, NULL, &point));
    EQUAL(o.graph.count, 12);
    EQUAL(o.graph.appended, 12);
    o.graph.count = o.graph.room;   /* the list is full */
    memory_fails(0, true);
    TO_PYTHON(append(&o, 1, 2, 0, NULL, &point));
    CHECK(memory_has_failed());
    o.graph.count = 12;
    fl_enter_recording(&o.graph.lock);
    TO_PYTHON(append(&o, 1, 2, 0, NULL, &point));
    fl_leave_recording(&o.graph.lock);
    o.graph.is_open = 0;
    TO_PYTHON(append(&o, 1, 2, 0, NULL, &point));
    EQUAL(the.added, 12);
    end_objects(&o);
}

/* A chain of six launches, of which the fourth does not wait, and of another command. The edges of
 * launches that may start early are not there yet. */
static void begin_chain(objects *o) {
    uint32_t point = 0;
    begin_objects(o, CONTEXT);
    describe(&o->one, &o->graph.launches[0], ((fl_handle *)o->kernel_h)->number);
    for (uint32_t i = 0; i < 6; i++) {
        o->graph.launches[0].waits = i != 3;
        OK(append(o, 1, 2, 0, NULL, &point));
    }
    CHECK(fl_plan_gpu_node(&o->graph, &(uint32_t){5}, 1) &&
          fl_add_gpu_node(&o->graph, NODES + 6, 0));
    EQUAL(fl_count_gpu_chains(&o->graph), 1);
    the.edges[6] = 'n';
    CHECK(!strcmp(the.edges, "---nn-n"));
}

void gpu_late_edges(world *w) {
    (void)w;
    objects o;
    begin_chain(&o);
    the.fails_at[CURRENT] = 1;
    EQUAL(fl_add_late_edges(&o.graph), FL_GPU_REFUSED);
    the.fails_at[ADD_EDGE] = 2;
    EQUAL(fl_add_late_edges(&o.graph), REFUSES);
    CHECK(!strcmp(the.edges, "-n-nn-n"));
    OK(fl_add_late_edges(&o.graph));
    CHECK(!strcmp(the.edges, "-nnnnnn"));
    the.fails_at[CURRENT] = 1;
    OK(fl_add_late_edges(&o.graph));   /* none is left, so it asks no driver */
    EQUAL(the.fails_at[CURRENT], 1);
    the.fails_at[CURRENT] = 0;
    end_objects(&o);
}

void gpu_late_edges_start_early(world *w) {
    (void)w;
    objects o;
    begin_chain(&o);
    the.fails_at[ADD_EDGE] = 2;
    EQUAL(fl_let_start_early(&o.graph, true), FL_GPU_REFUSED);
    CHECK(!strcmp(the.edges, "-nnnn-n"));
    OK(fl_add_late_edges(&o.graph));
    CHECK(!strcmp(the.edges, "-nnnnnn"));
    end_objects(&o);
}

void gpu_early_starts(world *w) {
    (void)w;
    objects o;
    begin_chain(&o);
    the.fails_at[REMOVE_EDGE] = 1;   /* nothing is removed */
    EQUAL(fl_let_start_early(&o.graph, true), 3);
    CHECK(!strcmp(the.edges, "-eennen") && the.fails_at[REMOVE_EDGE] == 1);
    the.fails_at[REMOVE_EDGE] = 0;
    EQUAL(fl_let_start_early(&o.graph, false), 3);
    CHECK(!strcmp(the.edges, "-nnnnnn"));
    the.fails_at[REMOVE_EDGE] = 3;
    EQUAL(fl_let_start_early(&o.graph, true), FL_GPU_REFUSED);
    CHECK(!strcmp(the.edges, "-nnnnnn"));
    the.fails_at[ADD_EDGE] = 3;
    EQUAL(fl_let_start_early(&o.graph, true), FL_GPU_REFUSED);
    CHECK(!strcmp(the.edges, "-nnnnnn"));
    the.fails_at[CURRENT] = 1;
    EQUAL(fl_let_start_early(&o.graph, true), FL_GPU_REFUSED);
    EQUAL(fl_let_start_early(&o.graph, true), 3);
    CHECK(!strcmp(the.edges, "-eennen"));
    EQUAL(fl_let_start_early(&o.graph, false), 3);
    CHECK(!strcmp(the.edges, "-nnnnnn"));
    the.loses = true;
    the.fails_at[ADD_EDGE] = 1;
    EQUAL(fl_let_start_early(&o.graph, true), FL_GPU_LOST);
    end_objects(&o);
}

/* --- updates --- */

typedef ur_exp_command_buffer_update_kernel_launch_desc_t update;
typedef ur_exp_command_buffer_update_value_arg_desc_t new_value;
typedef ur_exp_command_buffer_update_pointer_arg_desc_t new_pointer;

static new_value value_of(uint32_t index, size_t size, const void *at) {
    return (new_value){.argIndex = index, .argSize = size, .pNewValueArg = (uintptr_t)at};
}

static update of_values(const launched *l, uint32_t count, const new_value *values) {
    return (update){.hCommand = l->handle,
                    .newWorkDim = 1,
                    .numNewValueArgs = count,
                    .pNewValueArgList = values};
}

static bool updated(objects *o, uint32_t count, const update *updates) {
    return fl_update_gpu_graph(ADAPTER, o->graph_h, count, updates);
}

void gpu_updates(world *w) {
    for (int hip = 0; hip < 2; hip++) {   /* whose contexts are devices */
        objects o;
        begin_objects(&o, CONTEXT);
        if (hip) {
            functions[CURRENT] = (void *)get_device,
            functions[ENTER] = functions[LEAVE] = (void *)set_device;
            o.device.is_device = 1;
            the.device = OTHER;
        }
        int32_t number = 7;
        uintptr_t address = 1234;
        char large[LARGE];
        memset(large, 5, sizeof large);
        const new_value values[] = {value_of(1, 4, &number), value_of(2, LARGE, large)};
        const new_pointer pointer = {.argIndex = 0, .pNewPointerArg = (uintptr_t)&address};
        update both[] = {of_values(&o.one, 2, values), of_values(&o.two, 1, values)};
        both[1].numNewPointerArgs = 1, both[1].pNewPointerArgList = &pointer;
        both[1].hNewKernel = o.kernel_h;
        CHECK(updated(&o, 2, both));
        CHECK(the.given[0].number == 7 && the.given[0].address == 0 &&
              !memcmp(o.one.large, large, LARGE));
        CHECK(the.given[SECOND].number == 7 && the.given[SECOND].address == 1234 &&
              !o.two.large[0]);
        CHECK(o.one.command.changed && o.two.command.changed);
        if (hip)
            EQUAL(the.device, OTHER);
        const new_pointer null = {.argIndex = 0};
        both[1].pNewPointerArgList = &null, both[1].numNewValueArgs = 0;
        CHECK(updated(&o, 1, &both[1]));
        EQUAL(the.given[SECOND].address, 0);
        EQUAL(the.sets, 3);
        functions[CURRENT] = (void *)get_context, functions[ENTER] = (void *)push,
        functions[LEAVE] = (void *)pop;
        the.device = 0;
        end_objects(&o);
    }
}

/* Whichever the driver refuses, all are as before; so they are when there is no memory. */
void gpu_updates_undone(world *w) {
    for (int fails = 0; fails <= 4; fails++) {
        objects o;
        begin_objects(&o, CONTEXT);
        int32_t first = 7, second = 8;
        char large[LARGE];
        memset(large, 5, sizeof large);
        const new_value values[] = {value_of(1, 4, &first), value_of(2, LARGE, large),
                                    value_of(1, 4, &second)};
        const update all[] = {of_values(&o.one, 3, values), of_values(&o.two, 2, values),
                              of_values(&o.one, 1, values)};
        o.one.number = 3, o.two.number = 4;
        if (fails)
            the.fails_at[SET] = fails;
        else
            memory_fails(0, true);
        EQUAL(updated(&o, 3, all), fails == 4);
        if (!fails)
            CHECK(memory_has_failed());
        CHECK(o.one.number == (fails == 4 ? 7 : 3) && o.two.number == (fails == 4 ? 7 : 4));
        CHECK(o.one.large[LARGE - 1] == (fails == 4 ? 5 : 0) && o.two.large[0] == o.one.large[0]);
        CHECK(fails != 4 || o.one.command.changed);
        if (fails > 1)
            EQUAL(the.given[0].number, o.one.number);
        end_objects(&o);
    }
}

void gpu_updates_refused(world *w) {
    objects o;
    begin_objects(&o, CONTEXT);
    int32_t number = 7;
    uintptr_t address = 1;
    size_t size = 64;
    const new_value good = value_of(1, 4, &number),
                    bad[] = {value_of(1, 8, &number), value_of(3, 4, &number),
                             value_of(0, 4, &number), value_of(0, 0, &number),
                             value_of(1, 4, NULL)};
    const new_pointer no_address = {.argIndex = 1, .pNewPointerArg = (uintptr_t)&address};
    const update fine = of_values(&o.one, 1, &good);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        const update two[] = {fine, of_values(&o.two, 1, &bad[i])};
        CHECK(!updated(&o, 2, two));
    }
    update wrong[10];
    for (int i = 0; i < 10; i++)
        wrong[i] = fine;
    wrong[0].hCommand = o.kernel_h;
    wrong[1].hNewKernel = o.queue_h;
    wrong[2].newWorkDim = 2;
    wrong[3].pNewGlobalWorkSize = &size;
    wrong[4].pNewLocalWorkSize = &size;
    wrong[5].pNewGlobalWorkOffset = &size;
    wrong[6].numNewMemObjArgs = 1;
    wrong[7].pNewValueArgList = NULL;
    wrong[8].numNewPointerArgs = 1, wrong[8].pNewPointerArgList = &no_address;
    wrong[9].numNewPointerArgs = 1;
    for (int i = 0; i < 10; i++)
        CHECK(!updated(&o, 1, &wrong[i]));
    CHECK(!updated(&o, 0, &fine) && !updated(&o, 1, NULL) &&
          !fl_update_gpu_graph(ADAPTER, w->queue_h, 1, &fine));
    fl_enter_recording(&o.graph.lock);
    CHECK(!updated(&o, 1, &fine));
    fl_leave_recording(&o.graph.lock);
    the.fails_at[CURRENT] = 1;
    CHECK(!updated(&o, 1, &fine));
    o.one.command.node = 0;   /* Python makes all of its updates */
    CHECK(!updated(&o, 1, &fine));
    o.one.command.node = NODES, o.one.command.launch.sizes[1] = FL_GPU_OTHER;
    CHECK(!updated(&o, 1, &fine));
    o.one.command.launch.sizes[1] = 4, o.graph.is_updatable = 0;
    CHECK(!updated(&o, 1, &fine));
    EQUAL(the.sets, 0);
    o.graph.is_updatable = 1;
    CHECK(updated(&o, 1, &fine));
    end_objects(&o);
}

/* --- enqueues and waits --- */

static int32_t enqueue(objects *o) {
    return fl_urEnqueueCommandBufferExp(ADAPTER, o->queue_h, o->graph_h, NO_WAITS, NULL);
}

void gpu_enqueues(world *w) {
    objects o;
    begin_objects(&o, CONTEXT);
    push(OTHER);
    OK(enqueue(&o));
    EQUAL(the.pushed[0], OTHER);
    the.pushed[0] = CONTEXT;
    OK(enqueue(&o));
    OK(fl_urQueueFinish(ADAPTER, o.queue_h));
    EQUAL(the.launches, 2);
    EQUAL(the.waits, 1);
    the.depth = 0;
    uintptr_t event;
    TO_PYTHON(fl_urEnqueueCommandBufferExp(ADAPTER, o.queue_h, o.graph_h, NO_WAITS, &event));
    TO_PYTHON(fl_urEnqueueCommandBufferExp(ADAPTER, o.queue_h, o.graph_h, 1, &event, NULL));
    TO_PYTHON(fl_urEnqueueCommandBufferExp(ADAPTER, w->queue_h, o.graph_h, NO_WAITS, NULL));
    TO_PYTHON(fl_urEnqueueCommandBufferExp(ADAPTER, o.queue_h, o.queue_h, NO_WAITS, NULL));
    TO_PYTHON(fl_urEnqueueCommandBufferExp(ADAPTER, 0, 0, NO_WAITS, NULL));
    the.fails_at[LAUNCH] = the.fails_at[SYNCHRONIZE] = 1;
    TO_PYTHON(enqueue(&o));
    TO_PYTHON(fl_urQueueFinish(ADAPTER, o.queue_h));
    for (int which = 0; which < 2; which++) {   /* another thread has the graph, or the queue */
        unsigned *lock = which ? &o.graph.lock : &o.queue.lock;
        fl_enter_recording(lock);
        TO_PYTHON(enqueue(&o));
        EQUAL(fl_urQueueFinish(ADAPTER, o.queue_h), which ? 0 : FL_TO_PYTHON);
        fl_leave_recording(lock);
    }
    o.queue.stream = 0;
    TO_PYTHON(enqueue(&o));
    TO_PYTHON(fl_urQueueFinish(ADAPTER, o.queue_h));
    o.queue.stream = STREAM, o.queue.owner = 6;
    TO_PYTHON(enqueue(&o));
    o.queue.owner = OWNER, o.graph.is_plain = 0;
    TO_PYTHON(enqueue(&o));
    const fl_gpu_device other = o.device;
    o.graph.is_plain = 1, o.queue.device = &other;
    TO_PYTHON(enqueue(&o));
    EQUAL(the.launches, 2);
    EQUAL(the.waits, 2);
    end_objects(&o);
}

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 500 };

static void *run_thread(void *pointer) {
    objects *o = pointer;
    for (int32_t i = 0; i < ROUNDS; i++) {
        const new_value values[] = {value_of(1, 4, &i)};
        const update one = of_values(&o->one, 1, values);
        updated(o, 1, &one);
        int32_t code = enqueue(o);   /* unless another thread has it */
        CHECK(code == 0 || code == FL_TO_PYTHON);
        fl_enter_recording(&o->graph.lock);
        CHECK(o->one.command.changed >= 0 && the.given[0].number == o->one.number);
        fl_leave_recording(&o->graph.lock);
    }
    return NULL;
}

void thread_gpu(world *w) {
    pthread_t threads[THREADS];
    objects o;
    begin_objects(&o, CONTEXT);
    push(CONTEXT);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, run_thread, &o));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(the.sets && the.launches);
    the.depth = 0;
    end_objects(&o);
}
