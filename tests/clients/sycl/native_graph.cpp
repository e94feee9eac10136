// Native commands in a graph: calls of cl_khr_command_buffer on the command-buffer that the adapter
// lends.
#include "client.hpp"
#include <CL/cl_ext.h>

// The function had no properties before version 0.9.5 of the extension.
using fill_before_0_9_5 = cl_int(CL_API_CALL *)(cl_command_buffer_khr, cl_command_queue, cl_mem,
                                                const void *, size_t, size_t, size_t, cl_uint,
                                                const cl_sync_point_khr *, cl_sync_point_khr *,
                                                cl_mutable_command_khr *);

static bool is_before_0_9_5(cl_device_id device) {
  std::vector<cl_name_version> extensions(1000);
  size_t size = sizeof(cl_name_version) * extensions.size();
  clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS_WITH_VERSION, size, extensions.data(), nullptr);
  for (auto &each : extensions)
    if (std::string(each.name) == "cl_khr_command_buffer")
      return each.version < CL_MAKE_VERSION(0, 9, 5);
  return false;
}

static cl_int fill(sycl::interop_handle &native, cl_mem memory, size_t offset, int value,
                   size_t size) {
  auto device = native.get_native_device<sycl::backend::opencl>();
  auto commands = native.ext_codeplay_get_native_graph<sycl::backend::opencl>();
  cl_platform_id platform;
  clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, nullptr);
  void *found = clGetExtensionFunctionAddressForPlatform(platform, "clCommandFillBufferKHR");
  if (is_before_0_9_5(device))
    return fill_before_0_9_5(found)(commands, nullptr, memory, &value, sizeof value, offset, size,
                                    0, nullptr, nullptr, nullptr);
  auto command = clCommandFillBufferKHR_fn(found);
  return command(commands, nullptr, nullptr, memory, &value, sizeof value, offset, size, 0, nullptr,
                 nullptr, nullptr);
}

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 6;
    sycl::buffer<int, 1> buffer{sycl::range<1>{n}};
    buffer.set_write_back(false);
    std::vector<int> seen; // of each call: whether there is a graph, and the error
    {
      graph_t graph{queue, uses_buffers};
      auto add = [&](size_t first, int value, const sycl::property_list &order) {
        return graph.add([&, first, value](sycl::handler &h) {
          sycl::accessor access{buffer, h, sycl::read_write};
          h.ext_codeplay_enqueue_native_command([=, &seen](sycl::interop_handle native) {
            seen.push_back(native.ext_codeplay_has_graph());
            cl_mem memory = native.get_native_mem<sycl::backend::opencl>(access)[0];
            seen.push_back(
                fill(native, memory, first * sizeof(int), value, (n - first) * sizeof(int)));
          });
        }, order);
      };
      auto first = add(0, 1, {});
      auto second = add(2, 5, after(first));
      add(4, 9, after(second));
      executable_t executable = graph.finalize();
      print("seen", seen);
      queue.ext_oneapi_graph(executable).wait_and_throw();
    }
    print("buffer", sycl::host_accessor{buffer, sycl::read_only});
  });
}

// Prints:
//   seen: 1 0 1 0 1 0
//   buffer: 1 1 5 5 9 9
//   done
