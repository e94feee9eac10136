// USM without a graph: the three kinds, copies, fills, prefetch, kernels, barriers, host tasks, and
// queries about pointers.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 8;
    sycl::queue line{queue.get_context(), queue.get_device(), sycl::property::queue::in_order{}};
    usm<int> device(n, queue, kind::device), host(n, queue, kind::host),
        shared(n, queue, kind::shared);
    sycl::kernel axpy = make_kernel(queue, R"(
      kernel void axpy(global int *y, global const int *x, int a) {
        size_t i = get_global_id(0);
        y[i] += a * x[i];
      })",
                                    "axpy");
    std::vector<int> x(n);
    std::iota(x.begin(), x.end(), 0);
    auto copied = queue.memcpy(device, x.data(), n * sizeof(int));
    auto filled = queue.submit(filling(queue, shared.get(), 2, n));
    auto fetched = queue.prefetch(shared, n * sizeof(int), filled);
    auto advised = queue.mem_advise(shared, n * sizeof(int), 0, fetched);
    auto ran = queue.submit([&](sycl::handler &h) {
      h.depends_on({copied, advised});
      launch(axpy, sycl::range<1>{n}, device.get(), shared.get(), 3)(h);
    });
    auto barrier = queue.ext_oneapi_submit_barrier({ran});
    auto task = queue.submit([&](sycl::handler &h) {
      h.depends_on(barrier);
      h.host_task([&] { shared[0] = 77; });
    });
    queue.memcpy(host, device, n * sizeof(int), task).wait_and_throw();
    print("host", host.get(), n);
    line.memset(shared, 0, sizeof(int));
    line.memcpy(host.get() + 3, shared, sizeof(int)).wait_and_throw();
    print("host", host.get(), n);
    std::vector<int> kinds;
    for (const int *pointer : {host.get(), device.get(), shared.get() + 3, x.data()})
      kinds.push_back(int(sycl::get_pointer_type(pointer, queue.get_context())));
    print("kinds", kinds);
  });
}

// Prints:
//   host: 6 7 8 9 10 11 12 13
//   host: 6 7 8 0 10 11 12 13
//   kinds: 0 1 2 3
//   done
