/* What Python calls, and what generated thunks use: read by the C compiler and by cffi alike, so there is no directive in here. */

typedef struct fl_layer fl_layer;
typedef struct fl_thunks fl_thunks;

/* One call on its way. `function` is the slot; an argument that is a struct is the address of the struct. */
typedef struct fl_call {
    fl_layer *layer;
    uint32_t function;
    uint32_t count;
    const uint64_t *arguments;
    uint64_t result;
    uint64_t begin;
} fl_call;

/* `before` may answer a call itself: it sets `result` and returns 1. Without a next table, what is not answered comes to `orphan`. */
struct fl_layer {
    void *const *next;
    int (*before)(fl_call *call);
    void (*after)(fl_call *call);
    const fl_thunks *thunks;
    struct fl_log *log;
    uint64_t orphan;
    void *const *table; /* of its thunks */
    fl_layer *other;    /* of the same API */
    uint32_t taken;
};

/* How a parameter's memory is to be read for a trace: `kind` 0 not at all, 1 elements, 2 a C string, 3 a struct passed by value. There
 * are as many elements of `size` bytes as the argument `counted_by` says, one if it is -1. */
typedef struct fl_shape {
    uint8_t kind;
    int8_t counted_by;
    uint16_t size;
} fl_shape;

/* All that is generated for an API. `layers` leads to a list of its layers. `shapes` are those of all functions one after the other;
 * `first_shape` has slots + 1 entries. */
struct fl_thunks {
    uint32_t slots;
    fl_layer *const *layers;
    void *const *unsupported;
    void *const *uninitialized;
    const fl_shape *shapes;
    const uint16_t *first_shape;
};
