/* What Python and the generated thunks use. The C compiler and cffi read this file, so it has no
 * directives. */

typedef struct fl_layer fl_layer;
typedef struct fl_thunks fl_thunks;

/* A call that is running. `function` is the slot. A struct argument is given by its address. */
typedef struct fl_call {
    fl_layer *layer;
    uint32_t function;
    uint32_t count;
    uint64_t *arguments; /* `before` may exchange numbers and pointers */
    uint64_t result;
    uint64_t begin;
    uint64_t kept; /* by `before` for `after` */
} fl_call;

/* `before` may answer a call itself: it sets `result` and returns 1. If there is no next table, a
 * call that nobody answers returns `orphan`. */
struct fl_layer {
    void *const *next;
    int (*before)(fl_call *call);
    void (*after)(fl_call *call);
    const fl_thunks *thunks;
    struct fl_log *log;
    uint64_t orphan;
    void *const *table; /* its thunks */
    fl_layer *other;    /* the next layer of the same API */
    uint32_t taken;
};

/* How to read a parameter's memory for a trace. `kind` is 0: not at all, 1: elements, 2: a C
 * string, 3: a struct passed by value, 4: elements. `size` is the size of an element in bytes. The
 * argument `counted_by` is the number of elements; -1 means one element. Of kind 4 it leads to the
 * number, a uint32_t. */
typedef struct fl_shape {
    uint8_t kind;
    int8_t counted_by;
    uint16_t size;
} fl_shape;

/* Everything that is generated for an API. `layers` is the head of a list of its layers. `shapes`
 * holds the shapes of all functions in slot order; `first_shape` has slots + 1 entries. */
struct fl_thunks {
    uint32_t slots;
    fl_layer *const *layers;
    void *const *unsupported;
    void *const *uninitialized;
    const fl_shape *shapes;
    const uint16_t *first_shape;
    const int8_t *event_at; /* of each slot: the parameter for a command's event, -1: none */
};
