// What kernels are given: structs, values, pointers of every kind, accessors of buffers and of
// local memory; and what they print.
#include "device.hpp"

static const char *source = R"(
struct inner { char c; double d; };
struct record { inner parts[2]; short s; int *pointer; sycl::float3 v; };
KERNEL(1) structs(record r, char c, sycl::half h, double *out) {
  out[0] = r.parts[0].c, out[1] = r.parts[0].d, out[2] = r.parts[1].c,
  out[3] = r.parts[1].d, out[4] = r.s;
  out[5] = *r.pointer, out[6] = r.v.z(), out[7] = c, out[8] = h;
}
TASK kinds(const int *device, int *host, int *shared) {
  *host = *device + 1, *shared = *device + 2;
}
KERNEL(1)
lines(sycl::accessor<int, 1> to, sycl::accessor<int, 1, sycl::access_mode::read> from, int by) {
  to[index()] = by * from[index()];
}
KERNEL(2) grid(sycl::accessor<int, 2> cells) {
  auto item = here::get_nd_item<2>();
  cells[item.get_global_id()] =
      10 * item.get_global_id(0) + item.get_global_id(1) + 100 * cells.get_range()[0];
}
KERNEL(3) shape(int *out) {
  auto item = here::get_nd_item<3>();
  size_t i = item.get_global_linear_id();
  out[i] = 100 * item.get_group(0) + 10 * item.get_group(1) + item.get_group(2) +
           1000 * item.get_local_range(2);
}
KERNEL(1) swapped(sycl::local_accessor<int, 1> scratch, int *data) {
  auto item = here::get_nd_item<1>();
  size_t i = item.get_local_id(0);
  scratch[i] = data[index()];
  sycl::group_barrier(item.get_group());
  data[index()] = scratch[scratch.size() - 1 - i];
}
TASK prints(int number, float half, const char *text) {
  exp_::printf("a kernel prints %d %.2f %c%c\n", number, half, text[0], text[1]);
}
)";

struct inner {
  char c;
  double d;
};
struct record {
  inner parts[2];
  short s;
  int *pointer;
  sycl::float3 v;
};

int main() {
  return client([](sycl::queue &queue) {
    device_code code(queue, source);
    usm<int> device(1, queue, kind::device), host(1, queue, kind::host),
        shared(16, queue, kind::shared);
    usm<double> doubles(9, queue, kind::shared);
    usm<char> text(2, queue, kind::host);
    shared[0] = 41;
    record values{{{1, 2.5}, {-3, -4.5}}, 5, shared.get(), {6, 7, 8}};
    queue.submit(launch(code["structs"], once, values, char(-9), sycl::half(0.5f), doubles.get()))
        .wait_and_throw();
    print("structs", doubles.get(), 9);

    int seven = 7;
    queue.copy(&seven, device.get(), 1).wait_and_throw();
    queue.submit([&](sycl::handler &h) {
      h.set_args(device.get(), host.get(), shared.get());
      h.single_task(code["kinds"]);
    }).wait_and_throw();
    print("kinds", std::vector<int>{host[0], shared[0]});

    std::vector<int> from(12);
    std::iota(from.begin(), from.end(), 0);
    {
      sycl::buffer<int, 1> to{sycl::range<1>{12}}, source_of{from.data(), sycl::range<1>{12}};
      auto submit = [&](int by) {
        queue.submit([&](sycl::handler &h) {
          sycl::accessor<int, 1> written{to, h};
          sycl::accessor<int, 1, sycl::access_mode::read> read{source_of, h};
          h.set_args(written, read, by);
          h.parallel_for(groups_of{12, 4}, code["lines"]);
        });
      };
      submit(2), submit(3);
      print("lines", sycl::host_accessor{to, sycl::read_only});
      queue.submit([&](sycl::handler &h) {
        sycl::accessor<int, 1> written{to, h, sycl::range<1>{4}, sycl::id<1>{2}};
        sycl::accessor<int, 1, sycl::access_mode::read> read{source_of, h, sycl::range<1>{4},
                                                             sycl::id<1>{8}};
        h.set_args(written, read, -1);
        h.parallel_for(groups_of{4, 4}, code["lines"]);
      });
      print("with offsets", sycl::host_accessor{to, sycl::read_only});
      sycl::buffer<int, 2> cells{sycl::range<2>{3, 4}};
      queue.submit([&](sycl::handler &h) {
        h.set_args(sycl::accessor<int, 2>{cells, h});
        h.parallel_for(sycl::nd_range<2>{{3, 4}, {1, 2}}, code["grid"]);
      });
      print("grid", sycl::host_accessor{cells, sycl::read_only});
    }
    queue.submit(launch(code["shape"], sycl::nd_range<3>{{2, 2, 4}, {1, 1, 2}}, shared.get()))
        .wait_and_throw();
    print("shape", shared.get(), 16);
    queue.submit([&](sycl::handler &h) {
      h.set_args(sycl::local_accessor<int, 1>{sycl::range<1>{8}, h}, shared.get());
      h.parallel_for(groups_of{16, 8}, code["swapped"]);
    }).wait_and_throw();
    print("swapped", shared.get(), 16);
    text[0] = 'o', text[1] = 'k';
    queue.submit([&](sycl::handler &h) {
      h.set_args(12, 0.5f, text.get());
      h.single_task(code["prints"]);
    }).wait_and_throw();
  });
}

// Prints:
//   structs: 1 2.5 -3 -4.5 5 41 8 -9 0.5
//   kinds: 8 9
//   lines: 0 3 6 9 12 15 18 21 24 27 30 33
//   with offsets: 0 3 -8 -9 -10 -11 18 21 24 27 30 33
//   grid: 300 301 302 303 310 311 312 313 320 321 322 323
//   shape: 2000 2000 2001 2001 2010 2010 2011 2011 2100 2100 2101 2101 2110 2110 2111 2111
//   swapped: 2011 2011 2010 2010 2001 2001 2000 2000 2111 2111 2110 2110 2101 2101 2100 2100
//   a kernel prints 12 0.50 ok
//   done
