// The real loader without SYCL: lists what it has loaded, and uses a device, a queue, a buffer and
// a command-buffer.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unified-runtime/ur_api.h>

#define COUNT 6

static void check(ur_result_t result, const char *call) {
  if (result == UR_RESULT_SUCCESS)
    return;
  printf("error: %.*s: %#x\n", (int)(strchr(call, '(') - call), call, result);
  exit(1);
}
#define CHECK(call) check(call, #call)

static void print(const char *name, const int *values) {
  printf("%s:", name);
  for (int i = 0; i < COUNT; i++)
    printf(" %d", values[i]);
  printf("\n");
}

// Reads the buffer and prints it.
static void show(const char *name, ur_queue_handle_t queue, ur_mem_handle_t buffer) {
  int values[COUNT];
  CHECK(urEnqueueMemBufferRead(queue, buffer, true, 0, sizeof values, values, 0, NULL, NULL));
  print(name, values);
}

static void on_queue(ur_queue_handle_t queue, ur_mem_handle_t buffer) {
  const int values[COUNT] = {1, 2, 3, 4, 5, 6}, pattern = 9;
  ur_event_handle_t written, filled;
  CHECK(urEnqueueMemBufferWrite(queue, buffer, false, 0, sizeof values, values, 0, NULL, &written));
  CHECK(urEnqueueMemBufferFill(queue, buffer, &pattern, sizeof pattern, 2 * sizeof(int),
                               2 * sizeof(int), 1, &written, &filled));
  CHECK(urEventWait(1, &filled));
  show("queue", queue, buffer);
  CHECK(urEventRelease(written));
  CHECK(urEventRelease(filled));
}

static void in_command_buffer(ur_context_handle_t context, ur_device_handle_t device,
                              ur_queue_handle_t queue, ur_mem_handle_t buffer) {
    const ur_exp_command_buffer_desc_t description = {
        .stype = UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC};
    const int pattern = 7;
    ur_exp_command_buffer_handle_t commands;
    ur_exp_command_buffer_sync_point_t filled;
    ur_event_handle_t ran;
    CHECK(urCommandBufferCreateExp(context, device, &description, &commands));
    CHECK(urCommandBufferAppendMemBufferFillExp(commands, buffer, &pattern, sizeof pattern, 0,
                                                2 * sizeof(int), 0, NULL, 0, NULL, &filled, NULL,
                                                NULL));
    CHECK(urCommandBufferAppendMemBufferCopyExp(commands, buffer, buffer, 0, 4 * sizeof(int),
                                                2 * sizeof(int), 1, &filled, 0, NULL, NULL, NULL,
                                                NULL));
    CHECK(urCommandBufferFinalizeExp(commands));
    CHECK(urEnqueueCommandBufferExp(queue, commands, 0, NULL, &ran));
    CHECK(urEventWait(1, &ran));
    CHECK(urEventRelease(ran));
    CHECK(urCommandBufferReleaseExp(commands));
    show("command-buffer", queue, buffer);
}

int main(void) {
  ur_loader_config_handle_t config;
  ur_adapter_handle_t adapter;
  ur_platform_handle_t platform;
  ur_device_handle_t device;
  ur_context_handle_t context;
  ur_queue_handle_t queue;
  ur_mem_handle_t buffer;
  uint32_t adapters, platforms, devices;
  ur_backend_t backend;
  bool supported;

  CHECK(urLoaderConfigCreate(&config));
  CHECK(urLoaderInit(0, config));
  CHECK(urAdapterGet(0, NULL, &adapters));
  CHECK(urAdapterGet(1, &adapter, NULL));
  CHECK(urAdapterGetInfo(adapter, UR_ADAPTER_INFO_BACKEND, sizeof backend, &backend, NULL));
  CHECK(urPlatformGet(adapter, 0, NULL, &platforms));
  CHECK(urPlatformGet(adapter, 1, &platform, NULL));
  CHECK(urDeviceGet(platform, UR_DEVICE_TYPE_ALL, 0, NULL, &devices));
  CHECK(urDeviceGet(platform, UR_DEVICE_TYPE_ALL, 1, &device, NULL));
  printf("found: %u %u %u, OpenCL: %d\n", adapters, platforms, devices,
         backend == UR_BACKEND_OPENCL);
  fflush(stdout);

  CHECK(urContextCreate(1, &device, NULL, &context));
  CHECK(urQueueCreate(context, device, NULL, &queue));
  CHECK(urMemBufferCreate(context, UR_MEM_FLAG_READ_WRITE, COUNT * sizeof(int), NULL, &buffer));
  on_queue(queue, buffer);
  CHECK(urDeviceGetInfo(device, UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP, sizeof supported,
                        &supported, NULL));
  if (supported)
    in_command_buffer(context, device, queue, buffer);
  CHECK(urMemRelease(buffer));
  CHECK(urQueueRelease(queue));
  CHECK(urContextRelease(context));
  CHECK(urDeviceRelease(device));
  CHECK(urAdapterRelease(adapter));
  CHECK(urLoaderConfigRelease(config));
  CHECK(urLoaderTearDown());
  printf("done\n");
  return 0;
}

// Prints:
//   found: 1 1 1, OpenCL: 1
//   queue: 1 2 9 9 5 6
//   command-buffer: 7 7 9 9 7 7
//   done
