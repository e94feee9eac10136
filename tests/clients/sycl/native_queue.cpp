// A native command on a queue: an OpenCL call on the native queue that the runtime lends.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 6;
    sycl::buffer<int, 1> buffer{sycl::range<1>{n}};
    buffer.set_write_back(false);
    cl_int error = 1;
    for (int first : {0, 2})
      queue.submit([&](sycl::handler &h) {
        sycl::accessor access{buffer, h, sycl::read_write};
        h.ext_codeplay_enqueue_native_command([=, &error](sycl::interop_handle native) {
          int value = first + 1;
          cl_command_queue to = native.get_native_queue<sycl::backend::opencl>();
          cl_mem memory = native.get_native_mem<sycl::backend::opencl>(access)[0];
          size_t offset = first * sizeof value, size = (n - first) * sizeof value;
          error = clEnqueueFillBuffer(to, memory, &value, sizeof value, offset, size, 0, nullptr,
                                      nullptr);
        });
      }).wait_and_throw();
    print("error", std::vector<int>{error});
    print("buffer", sycl::host_accessor{buffer, sycl::read_only});
  });
}

// Prints:
//   error: 0
//   buffer: 1 1 3 3 3 3
//   done
