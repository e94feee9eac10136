// An updatable graph that takes over all nodes of another graph of the same shape.
#include "client.hpp"

static const char *source = R"(
  kernel void advance(global int *a, int m, int k) {
    size_t i = get_global_id(0);
    a[i] = m * a[i] + k;
  })";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 6;
    usm<int> a(n, queue, kind::shared), b(n, queue, kind::shared);
    sycl::kernel step = make_kernel(queue, source, "advance");
    auto make = [&](int *data, int m, int k, size_t size) {
      graph_t graph{queue};
      auto first = graph.add(launch(step, sycl::range<1>{size}, data, 0, k));
      auto second = graph.add(launch(step, sycl::range<1>{size}, data, m, 1), after(first));
      graph.add(launch(step, sycl::range<1>{size}, data, m, 2), after(second));
      return graph;
    };
    std::fill(a.get(), a.get() + n, -1);
    std::fill(b.get(), b.get() + n, -1);
    graph_t one = make(a, 2, 3, n), other = make(b, 10, 7, n / 2);
    executable_t executable = one.finalize({exp_::property::graph::updatable{}});
    queue.ext_oneapi_graph(executable).wait_and_throw();
    executable.update(other);
    queue.ext_oneapi_graph(executable).wait_and_throw();
    print("a", a.get(), n);
    print("b", b.get(), n);
  });
}

// Prints:
//   a: 16 16 16 16 16 16
//   b: 712 712 712 -1 -1 -1
//   done
