// Device globals of a kernel bundle: what one kernel leaves there the next one finds; another
// bundle has its own.
#include "device.hpp"

static const char *source = R"(
template <typename T>
using global =
    exp_::device_global<T, decltype(exp_::properties{exp_::device_image_scope})>;
global<int> counter;
namespace deep { global<float[4]> table; }
KERNEL(1) count(int by) {
  using atomic = sycl::atomic_ref<int, sycl::memory_order::relaxed, sycl::memory_scope::device>;
  atomic(counter.get()) += by;
}
KERNEL(1) store(float factor) { deep::table[index()] = factor * index(); }
KERNEL(1) look(int *count, float *table) {
  if (!index())
    *count = counter;
  table[index()] = deep::table[index()];
})";

int main() {
  return client([](sycl::queue &queue) {
    device_code first(queue, source), second(queue, (std::string(source) + "// another").c_str());
    usm<int> count(1, queue, kind::shared);
    usm<float> table(4, queue, kind::shared);
    auto look = [&](const char *name, device_code &code) {
      queue.submit(launch(code["look"], groups_of{4, 4}, count.get(), table.get()))
          .wait_and_throw();
      print((std::string(name) + " counter").c_str(), count.get(), 1);
      print((std::string(name) + " table").c_str(), table.get(), 4);
    };
    look("new", first);
    queue.submit(launch(first["count"], groups_of{64, 8}, 3)).wait_and_throw();
    queue.submit(launch(first["store"], groups_of{4, 2}, 0.5f)).wait_and_throw();
    queue.submit(launch(second["count"], groups_of{8, 8}, 1)).wait_and_throw();
    look("first", first);
    look("second", second);
  });
}

// Prints:
//   new counter: 0
//   new table: 0 0 0 0
//   first counter: 192
//   first table: 0 0.5 1 1.5
//   second counter: 8
//   second table: 0 0 0 0
//   done
