/* A tool that is compiled with the vendor's headers: it prints the calls that another part of the
 * program makes. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <level_zero/ze_api.h>
#include <level_zero/layers/zel_tracing_api.h>
#include <level_zero/layers/zel_tracing_register_cb.h>
#include <level_zero/loader/ze_loader.h>

static const char *data = "data";

static void before_init(ze_init_params_t *params, ze_result_t result, void *user, void **own) {
    *own = user;
    printf("zeInit(%u) begins: %d\n", (unsigned)*params->pflags, (int)result);
}

static void after_init(ze_init_params_t *params, ze_result_t result, void *user, void **own) {
    printf("zeInit(%u) ends: %#x, %s\n", (unsigned)*params->pflags, (unsigned)result,
           *own == user ? (const char *)user : "nothing");
}

/* A callback changes a parameter: one handle fits into the list. */
static void before_get(ze_driver_get_params_t *params, ze_result_t result, void *user, void **own) {
    printf("zeDriverGet begins: %u\n", (unsigned)**params->ppCount);
    **params->ppCount = 1;
}

static void after_query(ze_virtual_mem_query_page_size_params_t *params, ze_result_t result,
                        void *user, void **own) {
    printf("zeVirtualMemQueryPageSize(%zu) ends: %#x\n", *params->psize, (unsigned)result);
}

static void after_address(ze_driver_get_extension_function_address_params_t *params,
                          ze_result_t result, void *user, void **own) {
    printf("zeDriverGetExtensionFunctionAddress(%s) ends: %#x\n", *params->pname, (unsigned)result);
}

int main(void) {
    zel_tracer_desc_t desc = {ZEL_STRUCTURE_TYPE_TRACER_DESC, NULL, (void *)data};
    zel_core_callbacks_t before = {0}, after = {0};
    zel_tracer_handle_t tracer = NULL;
    zel_component_version_t versions[4];
    size_t version_count = 4, size = 0;
    ze_result_t code = zelTracerCreate(&desc, &tracer);
    if (code)
        return printf("zelTracerCreate: %#x\n", (unsigned)code), 1;
    before.Global.pfnInitCb = before_init, after.Global.pfnInitCb = after_init;
    before.Driver.pfnGetCb = before_get;
    after.VirtualMem.pfnQueryPageSizeCb = after_query;
    if (zelTracerSetPrologues(tracer, &before) || zelTracerSetEpilogues(tracer, &after) ||
        zelTracerDriverGetExtensionFunctionAddressRegisterCallback(tracer, ZEL_REGISTER_EPILOGUE,
                                                                   after_address) ||
        zelTracerSetEnabled(tracer, 1))
        return printf("no callbacks\n"), 1;
    uint32_t count = 4;
    ze_driver_handle_t drivers[4];
    void *address;
    if (zeInit(0) || zeDriverGet(&count, drivers) || zelLoaderGetVersions(&version_count, versions))
        return printf("no driver\n"), 1;
    zeVirtualMemQueryPageSize((ze_context_handle_t)drivers[0], (ze_device_handle_t)drivers[0], 77,
                              &size);
    zeDriverGetExtensionFunctionAddress(drivers[0], "none", &address);
    printf("%u driver, %s\n", (unsigned)count, versions[version_count - 1].component_name);
    zelTracerSetEnabled(tracer, 0);
    zeInit(0);
    return zelTracerDestroy(tracer) != ZE_RESULT_SUCCESS;
}
