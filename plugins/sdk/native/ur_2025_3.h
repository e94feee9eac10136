/* The functions whose parameters differ in DPC++ 2025.3. They call those of today, for a loader of
 * that release. ur_entries.h includes this behind its entry points. */

/* A property of a launch; today these are flags and a chain of structs. */
struct ur_kernel_launch_property_t {
    int32_t id;
    union {
        uint32_t cluster[3];
        int32_t is_on;
        size_t memory;
    } value;
};
enum { IGNORED, COOPERATIVE, CLUSTER, MEMORY, SERIALIZED };

static int32_t urEnqueueKernelLaunch_2025_3(
    uintptr_t queue, uintptr_t kernel, uint32_t dimensions, const size_t *offset,
    const size_t *size, const size_t *local, uint32_t property_count,
    const ur_kernel_launch_property_t *properties, uint32_t wait_count, const uintptr_t *waits,
    uintptr_t *event) {
    ur_kernel_launch_cluster_property_t cluster = {.stype = STYPE_CLUSTER};
    ur_kernel_launch_workgroup_property_t memory = {.stype = STYPE_MEMORY};
    ur_kernel_launch_ext_properties_t all = {.stype = STYPE_LAUNCH};
    if (property_count && !properties)
        return NULL_POINTER;
    for (uint32_t i = 0; i < property_count; i++)
        switch (properties[i].id) {
        case IGNORED:
            break;
        case COOPERATIVE:
            all.flags |= properties[i].value.is_on ? FLAG_COOPERATIVE : 0;
            break;
        case SERIALIZED:
            all.flags |= properties[i].value.is_on ? FLAG_SERIALIZED : 0;
            break;
        case CLUSTER:
            memcpy(cluster.clusterDim, properties[i].value.cluster, sizeof cluster.clusterDim);
            break;
        case MEMORY:
            memory.workgroup_mem_size = properties[i].value.memory;
            break;
        default:
            return INVALID_ENUMERATION;
        }
    if (memory.workgroup_mem_size)
        all.pNext = (uintptr_t)&memory;
    if (cluster.clusterDim[0]) {
        cluster.pNext = all.pNext;
        all.pNext = (uintptr_t)&cluster;
    }
    return urEnqueueKernelLaunch(queue, kernel, dimensions, offset, size, local,
                                 property_count ? &all : NULL, wait_count, waits, event);
}

static int32_t urProgramBuildExp_2025_3(uintptr_t program, uint32_t count, uintptr_t *devices,
                                        const char *options) {
    return urProgramBuildExp(program, count, devices, 0, options);
}

static int32_t urProgramCompileExp_2025_3(uintptr_t program, uint32_t count, uintptr_t *devices,
                                          const char *options) {
    return urProgramCompileExp(program, count, devices, 0, options);
}

static int32_t urProgramLinkExp_2025_3(uintptr_t context, uint32_t count, uintptr_t *devices,
                                       uint32_t program_count, const uintptr_t *programs,
                                       const char *options, uintptr_t *program) {
    return urProgramLinkExp(context, count, devices, 0, program_count, programs, options, program);
}
