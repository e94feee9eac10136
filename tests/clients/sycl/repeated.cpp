// Replays that nobody waits for: one after another on one queue and on two queues in turn, and with
// events between graphs.
#include "client.hpp"

static const char *source = R"(
  kernel void advance(global int *a, int m, int k) {
    size_t i = get_global_id(0);
    a[i] = (m * a[i] + k) % 10007;
  })";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 1024;
    usm<int> data(n, queue, kind::device), host(n, queue, kind::host);
    sycl::kernel step = make_kernel(queue, source, "advance");
    auto make = [&](int m, int k) {
      graph_t graph{queue};
      graph.add(launch(step, sycl::range<1>{n}, data.get(), m, k));
      return graph.finalize();
    };
    executable_t one = make(3, 1), two = make(5, 2);
    auto finish = [&](const char *name) {
      queue.memcpy(host, data, n * sizeof(int)).wait_and_throw();
      print(name, std::vector<int>{host[0], host[1], host[n - 1]});
    };

    queue.submit(filling(queue, data.get(), 1, n)).wait_and_throw();
    for (int run = 0; run < 50; run++)
      queue.ext_oneapi_graph(one);
    queue.wait_and_throw();
    finish("one queue");

    sycl::queue other{queue.get_context(), queue.get_device()};
    for (int run = 0; run < 50; run++)
      (run % 2 ? queue : other).ext_oneapi_graph(one);
    queue.wait_and_throw();
    other.wait_and_throw();
    finish("two queues");

    sycl::event last = queue.submit(filling(queue, data.get(), 1, n));
    for (int run = 0; run < 20; run++)
      last = (run % 3 ? queue : other).ext_oneapi_graph(run % 2 ? one : two, last);
    last.wait_and_throw();
    finish("by events");

    executable_t *brief = new executable_t(make(7, 3));
    queue.ext_oneapi_graph(*brief);
    delete brief; // while it may be running
    queue.wait_and_throw();
    finish("dropped");
  });
}

// Prints:
//   one queue: 2557 2557 2557
//   two queues: 7492 7492 7492
//   by events: 6573 6573 6573
//   dropped: 5986 5986 5986
//   done
