// A SYCL graph of 2,000 kernels is finalized. Writes what that took: a name, a tab, nanoseconds.
#include "sycl_kernel.hpp"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sycl/ext/oneapi/experimental/graph.hpp>
#include <vector>

namespace exp_ = sycl::ext::oneapi::experimental;
using graph_t = exp_::command_graph<exp_::graph_state::modifiable>;

static const char *const source =
    "kernel void store(global uint *to, uint value) { to[get_global_id(0)] = value; }";
enum { NODES = 2000, TURNS = 5 };

int main() {
  sycl::queue queue;
  sycl::kernel kernel = make_kernel(queue, source, "store");
  unsigned *to = sycl::malloc_shared<unsigned>(64, queue);
  graph_t graph(queue.get_context(), queue.get_device());
  std::vector<exp_::node> last;
  for (unsigned i = 0; i < NODES; i++) {
    auto launch = [&](sycl::handler &h) {
      h.set_args(to, i);
      h.parallel_for(sycl::range<1>(64), kernel);
    };
    auto node = last.empty() ? graph.add(launch)
                             : graph.add(launch, {exp_::property::node::depends_on(last[0])});
    last.assign(1, node);
  }
  std::vector<double> took;
  for (unsigned i = 0; i < TURNS; i++) {
    auto start = std::chrono::steady_clock::now();
    auto executable = graph.finalize();
    took.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    queue.ext_oneapi_graph(executable).wait();
  }
  std::sort(took.begin(), took.end());
  std::printf("finalize of a graph of 2,000 nodes\t%.0f\n", took[TURNS / 2]);
  sycl::free(to, queue);
}
