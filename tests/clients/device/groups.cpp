// Algorithms of work-groups and sub-groups: reductions, scans, broadcasts, votes, shuffles,
// barriers.
#include "device.hpp"

static const char *source = R"(
KERNEL(1) reductions(const int *in, int *out) {
  auto item = here::get_nd_item<1>();
  auto group = item.get_group();
  int value = in[index()], *to = out + 6 * item.get_group(0);
  int sum = sycl::reduce_over_group(group, value, sycl::plus<>());
  int most = sycl::reduce_over_group(group, value, -5, sycl::maximum<>());
  int joint = sycl::joint_reduce(group, in, in + 16, sycl::plus<>());
  int third = sycl::group_broadcast(group, value, 3);
  bool any = sycl::any_of_group(group, value == 9), all = sycl::all_of_group(group, value >= 8);
  if (group.leader()) {
    to[0] = sum, to[1] = most, to[2] = joint, to[3] = third, to[4] = any, to[5] = all;
  }
}
KERNEL(1) scans(const int *in, int *inclusive, int *exclusive, double *products) {
  auto group = here::get_nd_item<1>().get_group();
  size_t i = index();
  inclusive[i] = sycl::inclusive_scan_over_group(group, in[i], sycl::plus<>());
  exclusive[i] = sycl::exclusive_scan_over_group(group, in[i], 100, sycl::plus<>());
  products[i] = sycl::inclusive_scan_over_group(group, 1 + 0.5 * (in[i] & 1), sycl::multiplies<>());
}
KERNEL(1) sub_groups(int *sums, int *partners, int *neighbours, int *sizes) {
  auto group = here::get_sub_group();
  int lane = group.get_local_linear_id(), size = group.get_local_linear_range();
  size_t i = index();
  bool right = sycl::reduce_over_group(group, lane, sycl::plus<>()) == size * (size - 1) / 2;
  right &= sycl::inclusive_scan_over_group(group, 1, sycl::plus<>()) == lane + 1;
  right &= sycl::group_broadcast(group, 10 * lane, size - 1) == 10 * (size - 1);
  sums[i] = right;
  partners[i] = sycl::permute_group_by_xor(group, lane, 1) - (lane ^ 1);
  neighbours[i] = sycl::select_from_group(group, lane, (lane + 1) % size) - (lane + 1) % size;
  sizes[i] = size <= (int)group.get_max_local_range()[0] &&
             group.get_group_linear_id() < group.get_group_linear_range();
}
KERNEL(2) transposed(const int *in, int *out, sycl::local_accessor<int, 2> tile) {
  auto item = here::get_nd_item<2>();
  size_t row = item.get_local_id(0), column = item.get_local_id(1);
  tile[row][column] = in[item.get_global_linear_id()];
  sycl::group_barrier(item.get_group());
  out[item.get_global_linear_id()] = tile[column][row];
})";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 16;
    device_code code(queue, source);
    usm<int> in(n, queue, kind::shared), a(n, queue, kind::shared), b(n, queue, kind::shared),
        c(n, queue, kind::shared);
    usm<int> d(n, queue, kind::shared);
    usm<double> doubles(n, queue, kind::shared);
    std::iota(in.get(), in.get() + n, 0);
    queue.submit(launch(code["reductions"], groups_of{n, 8}, in.get(), a.get())).wait_and_throw();
    print("sum, maximum, joint sum, third, any, all", a.get(), 12);
    queue.submit(launch(code["scans"], groups_of{n, 8}, in.get(), a.get(), b.get(), doubles.get()))
        .wait_and_throw();
    print("inclusive", a.get(), n);
    print("exclusive", b.get(), n);
    print("products", doubles.get(), n);
    queue.submit(launch(code["sub_groups"], groups_of{n, 16}, a.get(), b.get(), c.get(), d.get()))
        .wait_and_throw();
    print("sums are right", a.get(), n);
    print("partners differ by", b.get(), n);
    print("neighbours differ by", c.get(), n);
    print("sizes are right", d.get(), n);
    queue.submit([&](sycl::handler &h) {
      h.set_args(in.get(), a.get(), sycl::local_accessor<int, 2>{sycl::range<2>{4, 4}, h});
      h.parallel_for(sycl::nd_range<2>{{4, 4}, {4, 4}}, code["transposed"]);
    }).wait_and_throw();
    print("transposed", a.get(), n);
    auto sizes = queue.get_device().get_info<sycl::info::device::sub_group_sizes>();
    size_t most =
        code["sub_groups"].get_info<sycl::info::kernel_device_specific::max_sub_group_size>(
            queue.get_device());
    print("a size that the device has",
          std::vector<bool>{std::count(sizes.begin(), sizes.end(), most) == 1});
  });
}

// Prints:
//   sum, maximum, joint sum, third, any, all: 28 7 120 3 0 0 92 15 120 11 1 1
//   inclusive: 0 1 3 6 10 15 21 28 8 17 27 38 50 63 77 92
//   exclusive: 100 100 101 103 106 110 115 121 100 108 117 127 138 150 163 177
//   products: 1 1.5 1.5 2.25 2.25 3.375 3.375 5.0625 1 1.5 1.5 2.25 2.25 3.375 3.375 5.0625
//   sums are right: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
//   partners differ by: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
//   neighbours differ by: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
//   sizes are right: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
//   transposed: 0 4 8 12 1 5 9 13 2 6 10 14 3 7 11 15
//   a size that the device has: 1
//   done
