// Two-dimensional fills of USM. libsycl fills what the host can see by a host task. Other memory it
// fills by a kernel of its own, since adapters say that they have no such fill: ours has one, but
// libsycl would give it elements for bytes. A program of a host's compiler does not have libsycl's
// kernel, so that fill ends in the search for it, and the memory stays as it was.
#include "device.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 12;
    usm<int> host(n, queue, kind::host), device(n, queue, kind::device);
    std::vector<int> rows(n, -1), seen(n);
    std::fill(host.get(), host.get() + n, -1);
    queue.ext_oneapi_fill2d(host.get() + 1, 4, 7, 2, 3).wait_and_throw();
    print("host", host.get(), n);
    queue.ext_oneapi_fill2d(rows.data(), 6, 8, 5, 2).wait_and_throw();
    print("no USM", rows);
    queue.ext_oneapi_memset2d(host.get(), 6 * sizeof(int), 0, sizeof(int), 2).wait_and_throw();
    print("memset", host.get(), n);
    std::vector<int> fives(n, 5); // a plain fill is a kernel of libsycl, too, on Level Zero
    queue.copy(fives.data(), device.get(), n).wait_and_throw();
    device_code code(queue,
                     "TASK nothing() {}"); // without kernels of its own the search is a crash
    try {
      queue.submit([&](sycl::handler &h) {
        h.use_kernel_bundle(code.bundle);
        h.ext_oneapi_fill2d(device.get(), 4, 9, 2, 3);
      }).wait_and_throw();
    } catch (const sycl::exception &error) {
      std::cout << error.what() << std::endl;
    }
    queue.memcpy(seen.data(), device.get(), n * sizeof(int)).wait_and_throw();
    print("device", seen);
  });
}

// Prints:
//   host: -1 7 7 -1 -1 7 7 -1 -1 7 7 -1
//   no USM: 8 8 8 8 8 -1 8 8 8 8 8 -1
//   memset: 0 7 7 -1 -1 7 0 -1 -1 7 7 -1
//   No kernel found with the specified name
//   device: 5 5 5 5 5 5 5 5 5 5 5 5
//   done
