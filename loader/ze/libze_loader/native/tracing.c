/* The tracing layer: callbacks of tools before and after each call (layers/zel_tracing_api.h). It
 * is there while ZE_ENABLE_TRACING_LAYER is 1, or zelEnableTracingLayer was called. Then
 * `fl_current` leads to the `traced_` functions.
 *
 * A call of Level Zero in a callback is not traced. A tracer lives until the calls that it traces
 * have ended: they count as its users. */
#define _GNU_SOURCE
#include "loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PROLOGUE, EPILOGUE, PLACES, STYPE_TRACER_DESC = 1 };

/* Of any function: `params` is a struct of pointers to its parameters, which a callback may change.
 * `result` is a code, a number or a handle. */
typedef void callback(void *params, uintptr_t result, void *data, void **own);

typedef struct fl_tracer {
    struct fl_tracer *next; /* of all */
    bool enabled;
    unsigned users;
    void *data;
    callback *callbacks[PLACES][FL_TRACED];
} fl_tracer;

typedef struct tracer_desc {
    uint32_t stype;
    const void *pNext;
    void *pUserData;
} tracer_desc;

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of the tracers; no callback is called with it */
static pthread_cond_t unused = PTHREAD_COND_INITIALIZER; /* a tracer has no users any more */
static fl_tracer *tracers, *enabled[FL_MOST_TRACERS];
static unsigned enabled_count, layers; /* `layers`: how often the layer was enabled */
static _Thread_local bool in_callback;

bool fl_is_traced(void) { return __atomic_load_n(&layers, __ATOMIC_ACQUIRE) > 0; }

static void add_layer(int change) {
    pthread_mutex_lock(&lock);
    if (change > 0 || layers)
        __atomic_store_n(&layers, layers + (unsigned)change, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    fl_show();
}

/* Programs may set the variable after this library is loaded, before the first init. */
__attribute__((constructor)) void fl_read_tracing(void) {
    static int by_variable;    /* GCC 12 exchanges no byte on riscv64 without libatomic */
    if (fl_is_set("ZE_ENABLE_TRACING_LAYER") &&
        !__atomic_exchange_n(&by_variable, true, __ATOMIC_ACQ_REL))
        add_layer(1);
}

/* The users that were other threads do not come back, and the one that forks is counted no more. */
void fl_free_tracers(void) {
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&unused, NULL);
    for (fl_tracer *one = tracers; one; one = one->next)
        one->users = 0;
}

/* --- calls --- */

static void call_all(fl_traced_call *call, int place, void *params, uintptr_t result) {
    in_callback = true;
    for (unsigned i = 0; i < call->count; i++) {
        callback *function = call->tracers[i]->callbacks[place][call->slot];
        if (function)
            function(params, result, call->tracers[i]->data, &call->own[i]);
    }
    in_callback = false;
}

bool fl_begin_call(fl_traced_call *call, unsigned slot, void *params) {
    call->slot = slot, call->count = 0;
    if (in_callback)
        return false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < enabled_count; i++) {
        fl_tracer *one = enabled[i];
        if (!one->callbacks[PROLOGUE][slot] && !one->callbacks[EPILOGUE][slot])
            continue;
        one->users++;
        call->own[call->count] = NULL;
        call->tracers[call->count++] = one;
    }
    pthread_mutex_unlock(&lock);
    if (call->count)
        call_all(call, PROLOGUE, params, ZE_RESULT_SUCCESS);
    return call->count;
}

void fl_end_call(fl_traced_call *call, void *params, uintptr_t result) {
    call_all(call, EPILOGUE, params, result);
    FL_HOLD(lock);
    for (unsigned i = 0; i < call->count; i++)
        if (call->tracers[i]->users && !--call->tracers[i]->users) /* 0 before: in a forked child */
            pthread_cond_broadcast(&unused);
}

/* --- tracers --- */

/* Where a tracer is among all. A handle of none is not looked at. */
static fl_tracer **find(const fl_tracer *tracer) {
    fl_tracer **at = &tracers;
    while (*at && *at != tracer)
        at = &(*at)->next;
    return at;
}

/* Begin to use a tracer. If it is one, the caller has the lock until end_use: FL_HOLD would give it
 * back here. Callbacks are changed while nobody can call them. */
static ze_result_t begin_use(const fl_tracer *tracer, bool to_change) {
    pthread_mutex_lock(&lock);
    bool known = tracer && *find(tracer);
    if (known && !(to_change && tracer->enabled))
        return ZE_RESULT_SUCCESS;
    pthread_mutex_unlock(&lock);
    return tracer ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
}

static ze_result_t end_use(ze_result_t code) {
    pthread_mutex_unlock(&lock);
    return code;
}

FL_EXPORT ze_result_t zelTracerCreate(const tracer_desc *desc, fl_tracer **tracer) {
    if (!fl_is_traced()) {
        fl_note("zelTracerCreate fails: there is no tracing layer; set ZE_ENABLE_TRACING_LAYER=1, "
                "or call zelEnableTracingLayer");
        return ZE_RESULT_ERROR_UNINITIALIZED;
    }
    if (!desc || !tracer) /* the user data may be NULL, as for Intel's loader */
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->stype != STYPE_TRACER_DESC)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    fl_tracer *made = calloc(1, sizeof *made);
    if (!made)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    made->data = desc->pUserData;
    pthread_mutex_lock(&lock);
    made->next = tracers;
    tracers = *tracer = made;
    return end_use(ZE_RESULT_SUCCESS);
}

FL_EXPORT ze_result_t zelTracerDestroy(fl_tracer *tracer) {
    ze_result_t code = begin_use(tracer, false);
    if (code)
        return code;
    if (tracer->enabled || in_callback) /* a callback would wait for its own call */
        return end_use(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    *find(tracer) = tracer->next; /* first: no other thread may use or destroy it meanwhile */
    while (tracer->users)
        pthread_cond_wait(&unused, &lock);
    free(tracer);
    return end_use(ZE_RESULT_SUCCESS);
}

static ze_result_t set_callbacks(fl_tracer *tracer, int place, callback *const *callbacks) {
    ze_result_t code = begin_use(tracer, true);
    if (code)
        return code;
    for (unsigned i = 0; callbacks && i < FL_CALLBACKS; i++)
        tracer->callbacks[place][fl_callback_slots[i]] = callbacks[i];
    return end_use(callbacks ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_POINTER);
}

FL_EXPORT ze_result_t zelTracerSetPrologues(fl_tracer *tracer, callback *const *callbacks) {
    return set_callbacks(tracer, PROLOGUE, callbacks);
}

FL_EXPORT ze_result_t zelTracerSetEpilogues(fl_tracer *tracer, callback *const *callbacks) {
    return set_callbacks(tracer, EPILOGUE, callbacks);
}

ze_result_t fl_register(void *handle, uint32_t place, unsigned slot, void *function) {
    fl_tracer *tracer = handle;
    ze_result_t code = begin_use(tracer, true);
    if (code)
        return code;
    if (place >= PLACES)
        return end_use(ZE_RESULT_ERROR_INVALID_ENUMERATION);
    tracer->callbacks[place][slot] = (callback *)function;
    return end_use(ZE_RESULT_SUCCESS);
}

FL_EXPORT ze_result_t zelTracerResetAllCallbacks(fl_tracer *tracer) {
    ze_result_t code = begin_use(tracer, true);
    if (code)
        return code;
    memset(tracer->callbacks, 0, sizeof tracer->callbacks);
    return end_use(code);
}

FL_EXPORT ze_result_t zelTracerSetEnabled(fl_tracer *tracer, ze_bool_t enable) {
    ze_result_t code = begin_use(tracer, false);
    if (code || tracer->enabled == (bool)enable)
        return code ? code : end_use(code);
    unsigned place = 0;
    while (place < enabled_count && enabled[place] != tracer)
        place++;
    if (enable && place == FL_MOST_TRACERS)
        return end_use(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    if (enable)
        enabled[enabled_count++] = tracer;
    else
        memmove(&enabled[place], &enabled[place + 1], (--enabled_count - place) * sizeof *enabled);
    tracer->enabled = enable;
    return end_use(ZE_RESULT_SUCCESS);
}

/* --- the layer --- */

FL_EXPORT ze_result_t zelGetTracerApiProcAddrTable(uint32_t version, void **table) {
    if (!table)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (version >> 16 != 1 || version > FL_VERSION)
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    void *const entries[] = {(void *)zelTracerCreate, (void *)zelTracerDestroy,
                             (void *)zelTracerSetPrologues, (void *)zelTracerSetEpilogues,
                             (void *)zelTracerSetEnabled};
    memcpy(table, entries, sizeof entries);
    return ZE_RESULT_SUCCESS;
}

FL_EXPORT ze_result_t zelEnableTracingLayer(void) {
    add_layer(1);
    return ZE_RESULT_SUCCESS;
}

FL_EXPORT ze_result_t zelDisableTracingLayer(void) {
    add_layer(-1);
    return ZE_RESULT_SUCCESS;
}

FL_EXPORT ze_result_t zelGetTracingLayerState(bool *is_there) {
    if (!is_there)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *is_there = fl_is_traced();
    return ZE_RESULT_SUCCESS;
}

/* The layer is not a library of its own. */
FL_EXPORT void *zeLoaderGetTracingHandle(void) { return NULL; }
