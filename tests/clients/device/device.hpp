// What the programs with device code share. libsycl compiles the kernels at run time, since the
// host's compiler makes none.
#ifndef DEVICE_HPP
#define DEVICE_HPP

#include "client.hpp"

// What DPC++ would say of libsycl's own kernel for fills: without a name an assertion ends the
// program.
namespace sycl {
inline namespace _V1 {
namespace detail {
template <> struct KernelInfo<__usmfill2d<int>> {
  static constexpr unsigned getNumParams() { return 0; }
  static constexpr const kernel_param_desc_t &getParamDesc(int) { return parameter; }
  static constexpr const char *getName() { return "libsycl's kernel"; }
  static constexpr bool isESIMD() { return false; }
  static constexpr const char *getFileName() { return ""; }
  static constexpr const char *getFunctionName() { return ""; }
  static constexpr unsigned getLineNumber() { return 0; }
  static constexpr unsigned getColumnNumber() { return 0; }
  static constexpr int64_t getKernelSize() { return 72; }
  static constexpr kernel_param_desc_t parameter{};
};
} // namespace detail
} // namespace _V1
} // namespace sycl

// What stands before the kernels of every program. libsycl compiles these headers in a third of the
// time that sycl.hpp takes. The release before has others.
inline const std::string preamble = R"(
#include <sycl/version.hpp>
#if __LIBSYCL_MAJOR_VERSION < 9
#include <sycl/sycl.hpp>
#else
#include <sycl/accessor.hpp>
#include <sycl/atomic_ref.hpp>
#include <sycl/ext/oneapi/device_global/device_global.hpp>
#include <sycl/ext/oneapi/experimental/builtins.hpp>
#include <sycl/ext/oneapi/experimental/work_group_memory.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/kernel_properties/properties.hpp>
#include <sycl/group_algorithm.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/half_type.hpp>
#endif
namespace exp_ = sycl::ext::oneapi::experimental;
namespace here = sycl::ext::oneapi::this_work_item;
#define KERNEL(dimensions) \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((exp_::nd_range_kernel<dimensions>)) void
#define TASK extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((exp_::single_task_kernel)) void
inline size_t index() { return here::get_nd_item<1>().get_global_id(0); }
)";

// Kernels that are compiled from SYCL code, by name.
class device_code {
public:
  device_code(const sycl::queue &queue, const char *kernels)
      : bundle(build(queue, preamble + kernels)) {}
  sycl::kernel operator[](const std::string &name) { return bundle.ext_oneapi_get_kernel(name); }

  sycl::kernel_bundle<sycl::bundle_state::executable> bundle;

private:
  static sycl::kernel_bundle<sycl::bundle_state::executable> build(const sycl::queue &queue,
                                                                   const std::string &source) {
    auto sources = exp_::create_kernel_bundle_from_source(queue.get_context(),
                                                          exp_::source_language::sycl, source);
#if __LIBSYCL_MAJOR_VERSION <                                                                      \
    9 // its wheel has no device libraries (libsycl-crt.bc), which no kernel here needs
    return exp_::build(sources, exp_::properties{exp_::build_options{"-fno-sycl-device-lib=all"}});
#else
    return exp_::build(sources);
#endif
  }
};

// libsycl 2025.3 has dynamic parameters of a graph; later ones belong to none until they are used.
#if __LIBSYCL_MAJOR_VERSION < 9
#define OF(graph) graph,
#else
#define OF(graph)
#endif

using groups_of = sycl::nd_range<1>; // work-items, and work-items in a group
inline const groups_of once{1, 1};

#endif
