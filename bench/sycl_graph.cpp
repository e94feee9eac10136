// What a thread pays to submit a SYCL graph of ten commands, in order. Writes lines: a name, a tab,
// nanoseconds of its CPU time. The copies need no device code, so any driver will do.
#include <cstdio>
#include <ctime>
#include <optional>
#include <sycl/ext/oneapi/experimental/graph.hpp>
#include <sycl/sycl.hpp>

namespace exp_ = sycl::ext::oneapi::experimental;
enum { COMMANDS = 10, BATCHES = 40, SUBMISSIONS = 50, SIZE = 64 };

static double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

template <typename Submit> static void measure(const char *name, sycl::queue &queue, Submit submit) {
  double least = 1e18;
  for (int batch = 0; batch < BATCHES; batch++) {
    double start = now();
    for (int i = 0; i < SUBMISSIONS; i++)
      submit();
    double took = (now() - start) / SUBMISSIONS;
    least = took < least ? took : least;
    queue.wait();
  }
  std::printf("%s\t%.0f\n", name, least);
}

static void run(sycl::queue queue, const char *in_a_row, const char *waited) {
  char *memory = sycl::malloc_shared<char>(SIZE * (COMMANDS + 1), queue);
  exp_::command_graph<exp_::graph_state::modifiable> graph(queue.get_context(), queue.get_device());
  std::optional<exp_::node> last;
  for (int i = 0; i < COMMANDS; i++) {
    auto copy = [&](sycl::handler &h) { h.memcpy(memory + (i + 1) * SIZE, memory + i * SIZE, SIZE); };
    last = last ? graph.add(copy, {exp_::property::node::depends_on(*last)}) : graph.add(copy);
  }
  auto executable = graph.finalize();
  for (int i = 0; i < 100; i++)   // until the driver below has found its way
    queue.ext_oneapi_graph(executable).wait();
  for (int i = 0; i < SIZE; i++)
    memory[i] = i;
  measure(in_a_row, queue, [&] { queue.ext_oneapi_graph(executable); });
  measure(waited, queue, [&] { queue.ext_oneapi_graph(executable).wait(); });
  for (int i = 0; i < SIZE; i++)
    if (memory[COMMANDS * SIZE + i] != i)
      std::printf("wrong\t%d\n", i);
  sycl::free(memory, queue);
}

int main() {
  run(sycl::queue(sycl::property::queue::in_order()), "in-order queue, submissions in a row",
      "in-order queue, each waited for");
  run(sycl::queue(), "out-of-order queue, submissions in a row", "out-of-order queue, each waited for");
}
