/* Images on a captured queue: copies, fills, and non-blocking reads and writes. Maps are refused,
 * as those of buffers are.
 *
 * What the driver would find out when it enqueues is left to the replay; what cannot be recorded
 * without is asked here. */
#include "recording.h"

static cl_mem_object_type type_of(cl_mem mem) {
    cl_mem_object_type type = 0;
    if (mem)
        CALL(fl_table_of(mem), clGetMemObjectInfo)(mem, CL_MEM_TYPE, sizeof type, &type, NULL);
    return type;
}

static bool is_image(cl_mem mem) {
    cl_mem_object_type type = type_of(mem);
    return type >= CL_MEM_OBJECT_IMAGE2D && type <= CL_MEM_OBJECT_IMAGE1D_BUFFER;
}

static void put_three(size_t *to, const size_t *three) {
    for (int i = 0; i < 3; i++)
        to[i] = three[i];
}

/* How much host memory a read or a write uses: up to the last byte of its last row. In a 1D array
 * the rows are the slices (SPEC clEnqueueReadImage). */
static size_t host_extent(cl_mem image, const size_t *region, size_t element, size_t row,
                          size_t slice) {
    size_t length = region[0] * element;
    row = row ? row : length;
    if (type_of(image) == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        return (region[1] - 1) * (slice ? slice : row) + length;
    slice = slice ? slice : region[1] * row;
    return (region[2] - 1) * slice + (region[1] - 1) * row + length;
}

static cl_int record_transfer(call *c, int slot, uint16_t op, cl_mem image, cl_bool blocking,
                              const size_t *origin, const size_t *region, size_t row, size_t slice,
                              const void *host, cl_uint wait_count, const cl_event *wait_list,
                              cl_event *event) {
    fl_command command = {.op = op, .n = {[9] = row, slice}};
    size_t element = 0;
    if (!is_image(image))
        return CL_INVALID_MEM_OBJECT;
    if (!origin || !fl_has_size(region))
        return CL_INVALID_VALUE;
    cl_int code = CALL(fl_table_of(image), clGetImageInfo)(image, CL_IMAGE_ELEMENT_SIZE,
                                                           sizeof element, &element, NULL);
    if (code != CL_SUCCESS)
        return code;
    put_three(command.n, origin);
    put_three(command.n + 6, region);
    return fl_record_transfer(c, slot, command, image, blocking, host,
                              host_extent(image, region, element, row, slice), wait_count,
                              wait_list, event);
}

static cl_int record_clEnqueueReadImage(cl_command_queue command_queue, cl_mem image,
                                        cl_bool blocking, const size_t *origin,
                                        const size_t *region, size_t row, size_t slice, void *host,
                                        cl_uint num_events_in_wait_list,
                                        const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueReadImage, command_queue, image, blocking, origin, region, row, slice, host,
          WAITS);
    return record_transfer(&c, SLOT_clEnqueueReadImage, FL_READ_IMAGE, image, blocking, origin,
                           region, row, slice, host, WAITS);
}

static cl_int record_clEnqueueWriteImage(cl_command_queue command_queue, cl_mem image,
                                         cl_bool blocking, const size_t *origin,
                                         const size_t *region, size_t row, size_t slice,
                                         const void *host, cl_uint num_events_in_wait_list,
                                         const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueWriteImage, command_queue, image, blocking, origin, region, row, slice, host,
          WAITS);
    return record_transfer(&c, SLOT_clEnqueueWriteImage, FL_WRITE_IMAGE, image, blocking, origin,
                           region, row, slice, host, WAITS);
}

static cl_int record_copy(call *c, int slot, fl_command command, const size_t *region,
                          cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
    put_three(command.n + 6, region);
    cl_int code = fl_keep_memory(c, slot, command.source);
    if (code == CL_SUCCESS)
        code = fl_keep_memory(c, slot, command.target);
    return code == CL_SUCCESS ? fl_append(c, slot, command, wait_count, wait_list, event) : code;
}

static cl_int record_clEnqueueCopyImage(cl_command_queue command_queue, cl_mem source,
                                        cl_mem target, const size_t *source_origin,
                                        const size_t *target_origin, const size_t *region,
                                        cl_uint num_events_in_wait_list,
                                        const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueCopyImage, command_queue, source, target, source_origin, target_origin, region,
          WAITS);
    fl_command command = {.op = FL_COPY_IMAGE, .source = source, .target = target};
    if (!is_image(source) || !is_image(target))
        return CL_INVALID_MEM_OBJECT;
    if (!source_origin || !target_origin || !fl_has_size(region))
        return CL_INVALID_VALUE;
    put_three(command.n, source_origin);
    put_three(command.n + 3, target_origin);
    return record_copy(&c, SLOT_clEnqueueCopyImage, command, region, WAITS);
}

static cl_int record_clEnqueueCopyImageToBuffer(cl_command_queue command_queue, cl_mem source,
                                                cl_mem target, const size_t *origin,
                                                const size_t *region, size_t offset,
                                                cl_uint num_events_in_wait_list,
                                                const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueCopyImageToBuffer, command_queue, source, target, origin, region, offset, WAITS);
    fl_command command = {
        .op = FL_COPY_IMAGE_TO_BUFFER, .source = source, .target = target, .n = {[3] = offset}};
    if (!is_image(source) || type_of(target) != CL_MEM_OBJECT_BUFFER)
        return CL_INVALID_MEM_OBJECT;
    if (!origin || !fl_has_size(region))
        return CL_INVALID_VALUE;
    put_three(command.n, origin);
    return record_copy(&c, SLOT_clEnqueueCopyImageToBuffer, command, region, WAITS);
}

static cl_int record_clEnqueueCopyBufferToImage(cl_command_queue command_queue, cl_mem source,
                                                cl_mem target, size_t offset, const size_t *origin,
                                                const size_t *region,
                                                cl_uint num_events_in_wait_list,
                                                const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueCopyBufferToImage, command_queue, source, target, offset, origin, region, WAITS);
    fl_command command = {
        .op = FL_COPY_BUFFER_TO_IMAGE, .source = source, .target = target, .n = {offset}};
    if (type_of(source) != CL_MEM_OBJECT_BUFFER || !is_image(target))
        return CL_INVALID_MEM_OBJECT;
    if (!origin || !fl_has_size(region))
        return CL_INVALID_VALUE;
    put_three(command.n + 3, origin);
    return record_copy(&c, SLOT_clEnqueueCopyBufferToImage, command, region, WAITS);
}

/* SPEC clEnqueueFillImage: the colour has four numbers of four bytes, that of a depth image one. */
static cl_int record_clEnqueueFillImage(cl_command_queue command_queue, cl_mem image,
                                        const void *colour, const size_t *origin,
                                        const size_t *region, cl_uint num_events_in_wait_list,
                                        const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueFillImage, command_queue, image, colour, origin, region, WAITS);
    fl_command command = {.op = FL_FILL_IMAGE, .target = image};
    cl_uint format[2] = {0};   /* cl_image_format: channel order, channel type */
    if (!is_image(image))
        return CL_INVALID_MEM_OBJECT;
    if (!origin || !fl_has_size(region))
        return CL_INVALID_VALUE;
    cl_int code = CALL(fl_table_of(image), clGetImageInfo)(image, CL_IMAGE_FORMAT, sizeof format,
                                                           format, NULL);
    if (code == CL_SUCCESS)
        code = fl_keep_memory(&c, SLOT_clEnqueueFillImage, image);
    if (code == CL_SUCCESS)
        code = fl_set_pattern(&c, SLOT_clEnqueueFillImage, &command, colour,
                              format[0] == CL_DEPTH ? 4 : 16);
    if (code != CL_SUCCESS)
        return code;
    put_three(command.n, origin);
    put_three(command.n + 6, region);
    return fl_append(&c, SLOT_clEnqueueFillImage, command, WAITS);
}

void fl_fill_image_slots(void **slots) {
    RECORD(clEnqueueReadImage);
    RECORD(clEnqueueWriteImage);
    RECORD(clEnqueueCopyImage);
    RECORD(clEnqueueCopyImageToBuffer);
    RECORD(clEnqueueCopyBufferToImage);
    RECORD(clEnqueueFillImage);
}
