// A graph with profiling: the times of a replay's event are there, and in order.
#include "client.hpp"

static const char *source = R"(
  kernel void work(global float *data) {
    float x = get_global_id(0);
    for (int i = 0; i < 100; i++)
      x = x * 0.5f + 1.0f;
    data[get_global_id(0)] = x;
  })";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 1 << 16;
    usm<float> data(n, queue, kind::shared);
    sycl::kernel work = make_kernel(queue, source, "work");
    graph_t graph{queue};
    auto first = graph.add(filling(queue, data.get(), 0.0f, n));
    graph.add(launch(work, sycl::range<1>{n}, data.get()), after(first));
    executable_t executable = graph.finalize({exp_::property::graph::enable_profiling{}});
    cl_ulong last = 0;
    for (int run = 0; run < 3; run++) {
      auto event = queue.ext_oneapi_graph(executable);
      event.wait_and_throw();
      auto submitted = event.get_profiling_info<sycl::info::event_profiling::command_submit>();
      auto started = event.get_profiling_info<sycl::info::event_profiling::command_start>();
      auto ended = event.get_profiling_info<sycl::info::event_profiling::command_end>();
      print("in order", std::vector<bool>{submitted <= started, started < ended, last <= started});
      last = ended;
    }
    print("data", data.get(), 3);
  }, {sycl::property::queue::enable_profiling{}});
}

// Prints:
//   in order: 1 1 1
//   in order: 1 1 1
//   in order: 1 1 1
//   data: 2 2 2
//   done
