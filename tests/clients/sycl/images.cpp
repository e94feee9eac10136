// Images: a kernel of OpenCL C reads one through a sampler and writes another, and the host gets
// the pixels back.
#include "client.hpp"

static const char *source = R"(
  kernel void turn(read_only image2d_t from, sampler_t sampler, write_only image2d_t to) {
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    write_imagei(to, (int2)(get_image_width(from) - 1 - at.x, at.y),
                 read_imagei(from, sampler, at) * 2);
  }
)";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t w = 4, h = 2, n = w * h;
    std::vector<sycl::int4> pixels(n), turned(n);
    for (size_t i = 0; i < n; i++)
      pixels[i] = sycl::int4(int(i), 0, 0, 1);
    {
      using order = sycl::image_channel_order;
      using type = sycl::image_channel_type;
      sycl::image<2> from{pixels.data(), order::rgba, type::signed_int32, sycl::range<2>{w, h}};
      sycl::image<2> to{turned.data(), order::rgba, type::signed_int32, sycl::range<2>{w, h}};
      sycl::kernel turn = make_kernel(queue, source, "turn");
      sycl::sampler sampler{sycl::coordinate_normalization_mode::unnormalized,
                            sycl::addressing_mode::clamp_to_edge, sycl::filtering_mode::nearest};
      queue.submit([&](sycl::handler &c) {
        auto read = from.get_access<sycl::int4, sycl::access::mode::read>(c);
        auto write = to.get_access<sycl::int4, sycl::access::mode::discard_write>(c);
        c.set_args(read, sampler, write);
        c.parallel_for(sycl::range<2>{h, w},
                       turn); // the last of SYCL's dimensions is OpenCL's first
      });
      queue.wait_and_throw();
    }
    std::vector<int> red(n);
    for (size_t i = 0; i < n; i++)
      red[i] = turned[i].x();
    print("turned", red);
  });
}

// Prints:
//   turned: 6 4 2 0 14 12 10 8
//   done
