// Bulk copies between global and shared memory and the barriers they complete on (PTX ISA 9.7.9.25 and
// 9.7.13.15). Device code for compute capability 9.0 and up; 16-byte aligned, sizes multiples of 16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yoke::kernels {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

#if __CUDA_ARCH__ >= 900

__device__ inline void barrier_init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
}

__device__ inline void make_barriers_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Copies to shared memory; the barrier's phase completes when all bytes are there. One thread.
__device__ inline void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

__device__ inline void barrier_wait(uint64_t* barrier, uint32_t phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}

// Orders ordinary writes to shared memory before a bulk copy that reads them: every writing thread, then a
// block barrier, then the copy.
__device__ inline void shared_writes_before_bulk() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Starts a copy to global memory, a group of its own. One thread, the one that waits.
__device__ inline void bulk_store(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all stores but the last kLeft have read their shared memory.
template <int kLeft>
__device__ inline void bulk_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}

#endif

}  // namespace yoke::kernels
