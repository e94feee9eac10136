/* Layers (cl_loader_layers 1.0.1): libraries that put a table in front of the drivers.
 * OPENCL_LAYERS names them, the last one is outermost; those of the manifests in OPENCL_LAYER_PATH,
 * else /etc/OpenCL/layers, are inside them. */
#define _GNU_SOURCE
#include "loader.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { LAYER_API_VERSION = 0x4240, LAYER_API_VERSION_100 = 100 };

typedef cl_int get_layer_info(cl_uint name, size_t size, void *into, size_t *size_ret);
typedef cl_int init_layer(cl_uint count, void *const *target, cl_uint *count_ret,
                          void *const **layer_ret);
typedef cl_int init_layer_with_properties(cl_uint count, void *const *target, cl_uint *count_ret,
                                          void *const **layer_ret, const cl_properties *properties);
typedef cl_int deinit_layer(void);

static struct layer {
    void *table[FL_SLOTS]; /* its own, and what it lacks of the next one; the next layer keeps it */
    deinit_layer *deinit;
    struct layer *inner;
} *outermost;
static void *const *top; /* the table of the outermost layer so far */

static bool is_legacy(void) { return secure_getenv("OCL_ICD_FORCE_LEGACY_TERMINATION") != NULL; }

/* NULL entries, and those behind the end of a layer's table, lead to the next table. */
static const char *start(void *handle) {
    get_layer_info *info = (get_layer_info *)dlsym(handle, "clGetLayerInfo");
    init_layer *init = (init_layer *)dlsym(handle, "clInitLayer");
    init_layer_with_properties *init_with =
        (init_layer_with_properties *)dlsym(handle, "clInitLayerWithProperties");
    cl_uint version = 0, count = 0;
    void *const *theirs = NULL;
    if (!info || (!init && !init_with))
        return "it is not a layer: it lacks clGetLayerInfo, or clInitLayer and "
               "clInitLayerWithProperties";
    if (info(LAYER_API_VERSION, sizeof version, &version, NULL) || version != LAYER_API_VERSION_100)
        return "it is a layer of a version other than 100";
    struct layer *layer = malloc(sizeof *layer);
    if (!layer)
        return "there is no memory";
    bool with_properties = init_with && !(is_legacy() && init);
    cl_int code = with_properties ? init_with(FL_SLOTS, top, &count, &theirs, NULL)
                                  : init(FL_SLOTS, top, &count, &theirs);
    if (code || (count && !theirs)) {
        free(layer);
        return "it failed to start";
    }
    for (cl_uint slot = 0; slot < FL_SLOTS; slot++)
        layer->table[slot] = slot < count && theirs[slot] ? theirs[slot] : top[slot];
    layer->deinit = with_properties ? (deinit_layer *)dlsym(handle, "clDeinitLayer") : NULL;
    layer->inner = outermost;
    outermost = layer;
    top = layer->table;
    return NULL;
}

static void open_layer(const char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    const char *reason = handle ? start(handle) : dlerror();
    if (reason)
        fl_say("the OpenCL layer %s is left out: %s", library, reason);
}

/* Other threads may be in the exported functions. */
static void show(void *const *table) {
    for (unsigned slot = 0; slot < FL_SLOTS; slot++)
        __atomic_store_n(&fl_current[slot], table[slot], __ATOMIC_RELEASE);
}

void fl_start_layers(void) {
    const char *path = secure_getenv("OPENCL_LAYER_PATH"), *names = secure_getenv("OPENCL_LAYERS");
    top = fl_bottom;
    fl_each_of_directory(path && *path ? path : "/etc/OpenCL/layers", ".lay", open_layer);
    if (names)
        fl_each_of_list(names, open_layer);
    show(top);
    if (!outermost)
        fl_go_direct();
}

void fl_end_layers(void) {
    if (!outermost || is_legacy())
        return;
    show(fl_bottom); /* what comes after still reaches the drivers */
    for (struct layer *layer = outermost; layer; layer = layer->inner)
        if (layer->deinit)
            layer->deinit();
    outermost = NULL;
}
