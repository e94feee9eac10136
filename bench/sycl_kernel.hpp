// A SYCL kernel that is made of OpenCL C: host-only compilation makes no device code.
#pragma once
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <sycl/backend/opencl.hpp>
#include <sycl/sycl.hpp>

inline sycl::kernel make_kernel(const sycl::queue &queue, const char *source, const char *name) {
  auto context = sycl::get_native<sycl::backend::opencl>(queue.get_context());
  auto device = sycl::get_native<sycl::backend::opencl>(queue.get_device());
  cl_program program = clCreateProgramWithSource(context, 1, &source, nullptr, nullptr);
  clBuildProgram(program, 1, &device, "", nullptr, nullptr);
  cl_kernel kernel = clCreateKernel(program, name, nullptr);
  return sycl::make_kernel<sycl::backend::opencl>(kernel, queue.get_context());
}
