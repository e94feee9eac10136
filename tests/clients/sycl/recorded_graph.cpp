// Record and replay: two out-of-order queues, with events from one to the other, then an in-order
// queue with no events at all.
#include "client.hpp"

static const char *source = R"(
  kernel void add(global int *to, global const int *from, int more) {
    size_t i = get_global_id(0);
    to[i] += from[i] + more;
  })";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 8;
    usm<int> a(n, queue, kind::device), b(n, queue, kind::device), host(n, queue, kind::host);
    std::vector<int> input(n);
    sycl::kernel add = make_kernel(queue, source, "add");

    sycl::queue other{queue.get_context(), queue.get_device()};
    graph_t graph{queue};
    graph.begin_recording({queue, other});
    auto in = queue.memcpy(a, input.data(), n * sizeof(int));
    auto filled = other.submit(filling(queue, b.get(), 5, n));
    auto zeroed = other.memset(b.get() + 6, 0, 2 * sizeof(int), filled);
    auto added = queue.submit([&](sycl::handler &h) {
      h.depends_on({in, zeroed});
      launch(add, sycl::range<1>{n}, a.get(), b.get(), 1000)(h);
    });
    auto out = other.memcpy(host, a, n * sizeof(int), added);
    auto task = queue.submit([&](sycl::handler &h) {
      h.depends_on(out);
      h.host_task([&] { host[0] = -host[0]; });
    });
    graph.end_recording();
    executable_t executable = graph.finalize();
    for (int run = 0; run < 2; run++) {
      std::iota(input.begin(), input.end(), 10 * run);
      queue.ext_oneapi_graph(executable).wait_and_throw();
      print("two queues", host.get(), n);
    }

    sycl::queue line{queue.get_context(), queue.get_device(), sycl::property::queue::in_order{}};
    graph_t linear{line};
    linear.begin_recording(line);
    line.memcpy(a, input.data(), n * sizeof(int));
    line.submit(filling(queue, b.get(), 1, n));
    for (int more = 1; more <= 10; more++)
      line.submit(launch(add, sycl::range<1>{n}, a.get(), b.get(), more));
    line.memcpy(host, a, n * sizeof(int));
    linear.end_recording(line);
    executable_t again = linear.finalize();
    for (int run = 0; run < 2; run++) {
      std::iota(input.begin(), input.end(), 100 * run);
      line.ext_oneapi_graph(again);
      line.wait_and_throw();
      print("in order", host.get(), n);
    }
  });
}

// Prints:
//   two queues: -1005 1006 1007 1008 1009 1010 1006 1007
//   two queues: -1015 1016 1017 1018 1019 1020 1016 1017
//   in order: 65 66 67 68 69 70 71 72
//   in order: 165 166 167 168 169 170 171 172
//   done
