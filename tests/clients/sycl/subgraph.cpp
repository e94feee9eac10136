// Graphs as nodes of a graph: added twice, recorded, and one within another; with a host task
// inside.
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
    auto advance = [&](int m, int k) { return launch(step, sycl::range<1>{n}, a.get(), m, k); };

    graph_t innermost{queue};
    innermost.add(advance(2, 1));
    executable_t double_and_add = innermost.finalize();

    graph_t inner{queue};
    auto nested = inner.add([&](sycl::handler &h) { h.ext_oneapi_graph(double_and_add); });
    inner.add([&](sycl::handler &h) { h.memcpy(b, a, n * sizeof(int)); }, after(nested));
    executable_t copied = inner.finalize();

    graph_t outer{queue};
    auto filled = outer.add(filling(queue, a.get(), 3, n));
    auto once = outer.add([&](sycl::handler &h) { h.ext_oneapi_graph(copied); }, after(filled));
    auto twice =
        outer.add([&](sycl::handler &h) { h.ext_oneapi_graph(double_and_add); }, after(once));
    outer.add([&](sycl::handler &h) { h.host_task([&] { a[0] = -a[0]; }); }, after(twice));
    executable_t executable = outer.finalize();
    for (int run = 0; run < 2; run++) {
      queue.ext_oneapi_graph(executable).wait_and_throw();
      print("a", a.get(), n);
      print("b", b.get(), n);
    }

    graph_t recorded{queue};
    recorded.begin_recording(queue);
    auto first = queue.submit(advance(0, 1));
    auto second = queue.ext_oneapi_graph(double_and_add, first);
    queue.ext_oneapi_graph(copied, second);
    recorded.end_recording(queue);
    queue.ext_oneapi_graph(recorded.finalize()).wait_and_throw();
    print("recorded", b.get(), n);
  });
}

// Prints:
//   a: -15 15 15 15 15 15
//   b: 7 7 7 7 7 7
//   a: -15 15 15 15 15 15
//   b: 7 7 7 7 7 7
//   recorded: 7 7 7 7 7 7
//   done
