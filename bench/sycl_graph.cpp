// What a thread pays to submit a SYCL graph of ten commands: a chain, or five branches of two.
// Writes lines: a name, a tab, nanoseconds of its CPU time. The copies need no device code, so any
// driver will do. With an argument it does something else. "kernels": what the kernels of a longer
// graph take by the clock, from the submission to the end; the median is written. "slow": how long
// the second of two submissions in a row takes by the clock, while the first one runs. "count": ten
// submissions of five branches.
#include "sycl_kernel.hpp"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <sycl/ext/oneapi/experimental/graph.hpp>
#include <vector>

namespace exp_ = sycl::ext::oneapi::experimental;
using executable = exp_::command_graph<exp_::graph_state::executable>;
enum { COMMANDS = 10, BRANCHES = 5, BATCHES = 40, SUBMISSIONS = 50, SIZE = 64, SLOW = 8 << 20 };
enum { KERNELS = 1000, ITEMS = 64, WARM = 50, ROUNDS = 101 };
static const char *const add =
    "kernel void add(global uint *to, uint n) { to[get_global_id(0)] += n; }";

static double now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

template <typename Submit>
static void measure(const std::string &name, sycl::queue &queue, Submit submit) {
  double least = 1e18;
  for (int batch = 0; batch < BATCHES; batch++) {
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < SUBMISSIONS; i++)
      submit();
    double took = (now(CLOCK_THREAD_CPUTIME_ID) - start) / SUBMISSIONS;
    least = took < least ? took : least;
    queue.wait();
  }
  std::printf("%s\t%.0f\n", name.c_str(), least);
}

// Copies that pass `size` bytes along, in so many branches that begin with the same bytes.
static executable build(sycl::queue &queue, char *memory, size_t size, int branches) {
  exp_::command_graph<exp_::graph_state::modifiable> graph(queue.get_context(), queue.get_device());
  for (int branch = 0; branch < branches; branch++) {
    std::optional<exp_::node> last;
    for (int i = branch; i < COMMANDS; i += branches) {
      char *source = last ? memory + (i + 1 - branches) * size : memory;
      auto copy = [&](sycl::handler &h) { h.memcpy(memory + (i + 1) * size, source, size); };
      last = last ? graph.add(copy, {exp_::property::node::depends_on(*last)}) : graph.add(copy);
    }
  }
  return graph.finalize();
}

static void run(sycl::queue queue, const std::string &kind, int branches) {
  char *memory = sycl::malloc_shared<char>(SIZE * (COMMANDS + 1), queue);
  executable graph = build(queue, memory, SIZE, branches);
  for (int i = 0; i < 100; i++)   // until the driver below has found its way
    queue.ext_oneapi_graph(graph).wait();
  for (int i = 0; i < SIZE; i++)
    memory[i] = i;
  measure(kind + ", submissions in a row", queue, [&] { queue.ext_oneapi_graph(graph); });
  measure(kind + ", each waited for", queue, [&] { queue.ext_oneapi_graph(graph).wait(); });
  for (int i = 0; i < SIZE; i++)
    if (memory[COMMANDS * SIZE + i] != i)
      std::printf("wrong\t%d\n", i);
  sycl::free(memory, queue);
}

static void run_slow(sycl::queue queue) {
  char *memory = sycl::malloc_shared<char>(size_t(SLOW) * (COMMANDS + 1), queue);
  std::memset(memory, 1, SLOW);
  executable graph = build(queue, memory, SLOW, BRANCHES);
  double least[2] = {1e18, 1e18};
  for (int i = 0; i < 20; i++) {
    queue.ext_oneapi_graph(graph);
    double begun = now(CLOCK_MONOTONIC), times[2];
    queue.ext_oneapi_graph(graph);
    times[0] = now(CLOCK_MONOTONIC) - begun;
    queue.wait();
    times[1] = now(CLOCK_MONOTONIC) - begun;
    for (int k = 0; i >= 5 && k < 2; k++)
      least[k] = times[k] < least[k] ? times[k] : least[k];
  }
  std::printf("the second of two, while the first one runs\t%.0f\n", least[0]);
  std::printf("both to their ends\t%.0f\n", least[1]);
  sycl::free(memory, queue);
}

// A chain of kernels of one work-group, each with another number.
static void run_kernels(sycl::queue queue, const std::string &kind) {
  sycl::kernel kernel = make_kernel(queue, add, "add");
  unsigned *to = sycl::malloc_shared<unsigned>(ITEMS, queue), sum = 0;
  std::memset(to, 0, ITEMS * sizeof *to);
  exp_::command_graph<exp_::graph_state::modifiable> graph(queue.get_context(), queue.get_device());
  std::optional<exp_::node> last;
  for (unsigned i = 0; i < KERNELS; i++) {
    auto launch = [&](sycl::handler &h) {
      h.set_args(to, i);
      h.parallel_for(sycl::nd_range<1>(ITEMS, ITEMS), kernel);
    };
    last = last ? graph.add(launch, {exp_::property::node::depends_on(*last)}) : graph.add(launch);
    sum += i;
  }
  executable made = graph.finalize();
  std::vector<double> took;
  for (int i = 0; i < WARM + ROUNDS; i++) {
    double begun = now(CLOCK_MONOTONIC);
    queue.ext_oneapi_graph(made).wait();
    took.push_back(now(CLOCK_MONOTONIC) - begun);
  }
  for (int i = 0; i < ITEMS; i++)
    if (to[i] != (WARM + ROUNDS) * sum)
      std::printf("wrong\t%d\n", i);
  std::sort(took.begin() + WARM, took.end());
  std::printf("%s queue\t%.0f\n", kind.c_str(), took[WARM + ROUNDS / 2]);
  sycl::free(to, queue);
}

int main(int count, char **arguments) {
  std::string what = count > 1 ? arguments[1] : "";
  if (what == "slow") {
    run_slow(sycl::queue());
  } else if (what == "kernels") {
    run_kernels(sycl::queue(sycl::property::queue::in_order()), "in-order");
    run_kernels(sycl::queue(), "out-of-order");
  } else if (what == "count") {
    sycl::queue queue;
    char *memory = sycl::malloc_shared<char>(SIZE * (COMMANDS + 1), queue);
    executable graph = build(queue, memory, SIZE, BRANCHES);
    for (int i = 0; i < 10; i++)
      queue.ext_oneapi_graph(graph).wait();
    sycl::free(memory, queue);
  } else {
    run(sycl::queue(sycl::property::queue::in_order()), "in-order queue, a chain", 1);
    run(sycl::queue(), "out-of-order queue, a chain", 1);
    run(sycl::queue(), "out-of-order queue, five branches", BRANCHES);
  }
}
