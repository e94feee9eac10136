// Atomic operations of several types, orders and scopes, in global and in local memory.
#include "device.hpp"

static const char *source = R"(
using sycl::memory_order, sycl::memory_scope, sycl::access::address_space;
template <typename T, memory_scope scope = memory_scope::device,
          address_space space = address_space::global_space>
using relaxed = sycl::atomic_ref<T, memory_order::relaxed, scope, space>;

KERNEL(1) integers(int *out, unsigned long *wide) {
  int i = index();
  relaxed<int>(out[0]).fetch_add(2);
  relaxed<int>(out[1]) -= 1;
  relaxed<int>(out[2]).fetch_max(i);
  relaxed<int>(out[3]).fetch_min(-i);
  relaxed<int>(out[4]).fetch_or(1 << (i % 8));
  relaxed<int>(out[5]).fetch_and(~(1 << (i % 8)));
  relaxed<int>(out[6])++;
  relaxed<unsigned long>(wide[0]) += 1ul << 32;
}
KERNEL(1) floats(float *single, double *wide) {
  relaxed<float>(single[0]) += 0.5f;
  relaxed<double, memory_scope::system>(wide[0]).fetch_add(0.25);
  relaxed<double>(wide[1]).fetch_max(index());
}
KERNEL(1) exchanges(int *lock, int *count) {
  sycl::atomic_ref<int, memory_order::acq_rel, memory_scope::device, address_space::global_space>
      at(*count);
  int seen = at.load(memory_order::acquire);
  while (!at.compare_exchange_strong(seen, seen + 3)) {
  }
  relaxed<int>(lock[0]).exchange(7);
}
KERNEL(1) in_local(sycl::local_accessor<int, 1> sum, int *out) {
  auto item = here::get_nd_item<1>();
  if (item.get_local_id(0) == 0)
    sum[0] = 0;
  sycl::group_barrier(item.get_group());
  relaxed<int, memory_scope::work_group, address_space::local_space>(sum[0]) +=
      item.get_local_id(0);
  sycl::group_barrier(item.get_group());
  if (item.get_local_id(0) == 0)
    relaxed<int>(*out) += sum[0];
}
)";

int main() {
  return client([](sycl::queue &queue) {
    device_code code(queue, source);
    const groups_of range{256, 16};
    usm<int> out(8, queue, kind::shared);
    usm<unsigned long> wide(1, queue, kind::shared);
    usm<float> single(1, queue, kind::shared);
    usm<double> doubles(2, queue, kind::shared);
    std::fill(out.get(), out.get() + 8, 0);
    out[5] = 255, wide[0] = 0, single[0] = 0, doubles[0] = doubles[1] = 0;
    queue.submit(launch(code["integers"], range, out.get(), wide.get())).wait_and_throw();
    print("integers", out.get(), 7);
    print("wide", std::vector<unsigned long>{wide[0] >> 32});
    queue.submit(launch(code["floats"], range, single.get(), doubles.get())).wait_and_throw();
    print("floats", std::vector<double>{single[0], doubles[0], doubles[1]});
    out[0] = out[1] = out[2] = 0;
    queue.submit(launch(code["exchanges"], range, out.get(), out.get() + 1)).wait_and_throw();
    queue.submit([&](sycl::handler &h) {
      h.set_args(sycl::local_accessor<int, 1>{sycl::range<1>{1}, h}, out.get() + 2);
      h.parallel_for(range, code["in_local"]);
    }).wait_and_throw();
    print("exchanged, counted, in local memory", out.get(), 3);
  });
}

// Prints:
//   integers: 512 -256 255 -255 255 0 256
//   wide: 256
//   floats: 128 64 255
//   exchanged, counted, in local memory: 7 768 1920
//   done
