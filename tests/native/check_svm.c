/* SVM that a graph uses is freed with the graph, however and whenever the program frees it, and
 * everything else at once. */
#include "harness.h"

static void *make(world *w) {
    void *pointer = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0);
    CHECK(pointer != NULL);
    return pointer;
}

static void let_go(world *w, void *pointer) { CL(w->context, clSVMFree)(w->context, pointer); }

static void use(world *w, void *pointer) {
    OK(CL(w->queue, clEnqueueSVMMemFill)(w->queue, pointer, "ab", 2, 16, 0, NULL, NULL));
}

SCENARIO(svm_freed_in_block) {
    fl_recording *r = begin(w);
    char *used = make(w), *unused = make(w), *inside = make(w);
    use(w, used);
    use(w, inside + 8);
    let_go(w, used);
    let_go(w, inside);
    let_go(w, unused);
    CHECK(mock_svm_lives(used) && mock_svm_lives(inside) && !mock_svm_lives(unused));
    end(w, r);
    CHECK(mock_svm_lives(used) && mock_svm_lives(inside));
    /* the program's, the graph's, and one for each free that was put off */
    EQUAL(mock_references(w->context), 4);
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
    EQUAL(mock_references(w->context), 1);
}

SCENARIO(svm_freed_after_block) {
    fl_recording *r = begin(w);
    char *used = make(w);
    use(w, used);
    end(w, r);
    char *later = make(w);
    let_go(w, later);
    let_go(w, used);
    CHECK(mock_svm_lives(used) && !mock_svm_lives(later));
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
}

SCENARIO(svm_never_freed) {
    fl_recording *r = begin(w);
    char *used = make(w);
    use(w, used);
    end(w, r);
    CHECK(!mock_is_untouched(w->m));   /* a free still has to be seen */
    drop(w, r);
    CHECK(mock_svm_lives(used));       /* it is the program's */
    let_go(w, used);
    EQUAL(mock_living_svm(), 0);
}

SCENARIO(svm_freed_twice) {
    fl_recording *r = begin(w);
    char *used = make(w);
    use(w, used);
    let_go(w, used);
    let_go(w, used);   /* a mistake of the program's; the driver sees one */
    let_go(w, NULL);
    end(w, r);
    drop(w, r);
    EQUAL(mock_calls(SLOT_clSVMFree), 1);
}

/* On a queue that is not captured: all of the list, some of it, none of it is used by a graph. */
SCENARIO(svm_freed_by_enqueue) {
    fl_recording *r = begin(w);
    void *used[] = {make(w), make(w)}, *unused[] = {make(w), make(w)};
    cl_event e = NULL;
    cl_command_queue q = w->free_queue;
    use(w, used[0]);
    use(w, used[1]);
    OK(CL(q, clEnqueueSVMFree)(q, 2, unused, NULL, NULL, 0, NULL, NULL));
    EQUAL(mock_log(0)->slot, SLOT_clEnqueueSVMFree);
    CHECK(!mock_svm_lives(unused[0]) && !mock_svm_lives(unused[1]));
    OK(CL(q, clEnqueueSVMFree)(q, 2, used, NULL, NULL, 0, NULL, &e));
    CHECK(mock_svm_lives(used[0]) && mock_svm_lives(used[1]) && e);
    EQUAL(mock_log(1)->slot, SLOT_clEnqueueMarkerWithWaitList);
    release_event(e);
    end(w, r);
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
}

SCENARIO(svm_freed_some) {
    fl_recording *r = begin(w);
    void *list[] = {make(w), make(w), make(w)};
    cl_event e = NULL;
    use(w, list[1]);
    end(w, r);
    OK(CL(w->queue, clEnqueueSVMFree)(w->queue, 3, list, NULL, NULL, 0, NULL, &e));
    CHECK(!mock_svm_lives(list[0]) && mock_svm_lives(list[1]) && !mock_svm_lives(list[2]));
    EQUAL(mock_log(0)->n[0], 2);
    CHECK(mock_log(0)->event == e);
    release_event(e);
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
}

/* The list is read when the command runs, long after the call; the program wants no event. */
SCENARIO(svm_freed_some_later) {
    fl_recording *r = begin(w);
    void *list[] = {make(w), make(w), make(w)};
    cl_event first = mock_pending(w->context), e = NULL;
    use(w, list[0]);
    end(w, r);
    mock_events_are(CL_QUEUED);
    OK(CL(w->queue, clEnqueueSVMFree)(w->queue, 3, list, NULL, NULL, 1, &first, &e));
    EQUAL(mock_log(0)->wait_count, 1);
    drop(w, r);
    CHECK(!mock_svm_lives(list[0]) && mock_svm_lives(list[1]));
    list[1] = list[2] = NULL;   /* the program's list is its own */
    mock_complete(e, CL_COMPLETE);
    EQUAL(mock_living_svm(), 0);
    release_event(e);
    release_event(first);
}

/* Made before anything was watched: its size is not known, and a pointer into it keeps it. */
SCENARIO(svm_unknown) {
    char *a = make(w), *b = make(w), *low = a < b ? a : b, *high = a < b ? b : a;
    fl_recording *r = begin(w);
    use(w, high + 8);
    let_go(w, high);
    CHECK(mock_svm_lives(high));
    let_go(w, low);   /* `high` may lie in it, as far as anybody can know: too late is harmless */
    let_go(w, low);
    end(w, r);
    CHECK(mock_svm_lives(high));
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
    EQUAL(mock_references(w->context), 1);
}

SCENARIO(svm_two_graphs) {
    fl_recording *r = begin(w), *s = begin_free(w);
    char *known = make(w);
    use(w, known);
    OK(CL(w->free_queue, clEnqueueSVMMemFill)(w->free_queue, known + 4, "ab", 2, 16, 0, NULL,
                                              NULL));
    let_go(w, known);
    fl_end(r);
    end(w, s);
    fl_drop(r);
    CHECK(mock_svm_lives(known));
    drop(w, s);
    EQUAL(mock_living_svm(), 0);

    char *unknown = make(w);
    r = begin(w);
    use(w, unknown);
    end(w, r);
    s = begin(w);
    use(w, unknown);
    end(w, s);
    let_go(w, unknown);
    fl_drop(s);
    CHECK(mock_svm_lives(unknown));
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
}

/* A free on the captured queue: the graph's from then on, with a sync-point if an event is wanted.
 */
SCENARIO(svm_free_recorded) {
    void *before = make(w);
    fl_recording *r = begin(w);
    void *list[] = {make(w), before, NULL};
    cl_event e = NULL;
    use(w, list[0]);
    OK(CL(w->queue, clEnqueueSVMFree)(w->queue, 3, list, NULL, NULL, 0, NULL, &e));
    OK(marker(w->queue, 1, &e, NULL));
    release_event(e);
    CHECK(mock_svm_lives(list[0]) && mock_svm_lives(before));
    end(w, r);
    EQUAL(count_of(r), 3);
    EQUAL(command(r, 1)->op, FL_MARKER);
    EQUAL(mock_count(), 0);
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
}

static void free_all(cl_command_queue queue, cl_uint count, void **list, void *data) {
    for (cl_uint i = 0; i < count; i++)
        let_go(data, list[i]);
}

/* The program frees by its own function: on the captured queue that cannot be recorded, on another
 * its frees are seen. */
SCENARIO(svm_free_function) {
    fl_recording *r = begin(w);
    void *list[] = {make(w), make(w)};
    use(w, list[0]);
    refused(w,
            CL(w->queue, clEnqueueSVMFree)(w->queue, 2, list, (void *)free_all, w, 0, NULL, NULL),
            SLOT_clEnqueueSVMFree, FL_CANNOT_CAPTURE);
    end(w, r);
    OK(CL(w->queue, clEnqueueSVMFree)(w->queue, 2, list, (void *)free_all, w, 0, NULL, NULL));
    CHECK(mock_svm_lives(list[0]) && !mock_svm_lives(list[1]));
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
}

/* A call that failed freed nothing: what it named is still the program's, used by a graph or not.
 */
SCENARIO(svm_failed_free) {
    fl_recording *r = begin(w);
    void *list[] = {make(w), make(w)};
    cl_event nothing = NULL;
    use(w, list[0]);
    end(w, r);
    EQUAL(CL(w->queue, clEnqueueSVMFree)(w->queue, 2, list, NULL, NULL, 1, NULL, NULL),
          CL_INVALID_EVENT_WAIT_LIST);
    EQUAL(CL(w->queue, clEnqueueSVMFree)(w->queue, 1, list, NULL, NULL, 0, &nothing, NULL),
          CL_INVALID_EVENT_WAIT_LIST);
    drop(w, r);
    CHECK(mock_svm_lives(list[0]) && mock_svm_lives(list[1]));
    EQUAL(mock_references(w->context), 1);
    OK(CL(w->queue, clEnqueueSVMFree)(w->queue, 2, list, NULL, NULL, 0, NULL, NULL));
    EQUAL(mock_living_svm(), 0);
}

SCENARIO(svm_bad_list) {
    fl_recording *r = begin(w);
    void *one = make(w);
    EQUAL(CL(w->queue, clEnqueueSVMFree)(w->queue, 1, NULL, NULL, NULL, 0, NULL, NULL),
          CL_INVALID_VALUE);
    EQUAL(CL(w->queue, clEnqueueSVMFree)(w->queue, 0, &one, NULL, NULL, 0, NULL, NULL),
          CL_INVALID_VALUE);
    EQUAL(CL(w->free_queue, clEnqueueSVMFree)(w->free_queue, 1, NULL, NULL, NULL, 0, NULL, NULL),
          CL_INVALID_VALUE);
    EQUAL(CL(w->free_queue, clEnqueueSVMFree)(w->free_queue, 0, &one, NULL, NULL, 0, NULL, NULL),
          CL_INVALID_VALUE);
    let_go(w, one);
    end(w, r);
    drop(w, r);
}
