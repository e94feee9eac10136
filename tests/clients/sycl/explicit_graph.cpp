// A graph made node by node: memcpy, fill, memset, host_task, empty nodes; run three times.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 8;
    usm<int> device(n, queue, kind::device), host(n, queue, kind::host),
        shared(n, queue, kind::shared);
    std::vector<int> input(n);
    int runs = 0;

    graph_t graph{queue};
    auto in = graph.add([&](sycl::handler &h) { h.memcpy(device, input.data(), n * sizeof(int)); });
    auto filled = graph.add(filling(queue, shared.get(), 7, n));
    auto zeroed = graph.add(
        [&](sycl::handler &h) { h.memset(shared.get() + 4, 1, 2 * sizeof(int)); }, after(filled));
    auto both = graph.add(after(in, zeroed));
    auto task = graph.add([&](sycl::handler &h) { h.host_task([&] { shared[0] = 100 + ++runs; }); },
                          after(both));
    auto out = graph.add([&](sycl::handler &h) { h.memcpy(host, device, n * sizeof(int)); });
    graph.make_edge(task, out);
    auto tail = graph.add(
        [&](sycl::handler &h) { h.memcpy(host.get() + 6, shared, 2 * sizeof(int)); }, after(out));
    executable_t executable = graph.finalize();

    for (int run = 0; run < 3; run++) {
      std::iota(input.begin(), input.end(), 10 * run);
      queue.ext_oneapi_graph(executable).wait_and_throw();
      print("host", host.get(), n);
      print("shared", shared.get(), n);
    }
    print("counts", std::vector<size_t>{graph.get_nodes().size(), graph.get_root_nodes().size(),
                                        size_t(runs)});
  });
}

// Prints:
//   host: 0 1 2 3 4 5 101 7
//   shared: 101 7 7 7 16843009 16843009 7 7
//   host: 10 11 12 13 14 15 102 7
//   shared: 102 7 7 7 16843009 16843009 7 7
//   host: 20 21 22 23 24 25 103 7
//   shared: 103 7 7 7 16843009 16843009 7 7
//   counts: 7 2 3
//   done
