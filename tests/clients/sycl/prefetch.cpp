// Prefetch and advice as nodes of a graph: hints, which leave the data as it is and keep the order.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 6;
    usm<int> shared(n, queue, kind::shared);
    sycl::kernel twice = make_kernel(
        queue, "kernel void twice(global int *data) { data[get_global_id(0)] *= 2; }", "twice");
    graph_t graph{queue};
    auto filled = graph.add(filling(queue, shared.get(), 21, n));
    auto fetched = graph.add([&](sycl::handler &h) { h.prefetch(shared.get(), n * sizeof(int)); },
                             after(filled));
    auto advised = graph.add(
        [&](sycl::handler &h) { h.mem_advise(shared.get(), n * sizeof(int), 0); }, after(fetched));
    graph.add(launch(twice, sycl::range<1>{n}, shared.get()), after(advised));
    executable_t executable = graph.finalize();
    for (int run = 0; run < 2; run++)
      queue.ext_oneapi_graph(executable).wait_and_throw();
    print("shared", shared.get(), n);
  });
}

// Prints:
//   shared: 42 42 42 42 42 42
//   done
