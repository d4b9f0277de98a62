// Chooses an algorithm of cuBLASLt for a product by timing those it proposes.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

namespace yoke::compute::cuda {

using LtProposals = std::vector<cublasLtMatmulHeuristicResult_t>;

// The fastest of `proposals`, which must not be empty. `launch` starts the product on `stream`; a failed
// launch rules an algorithm out. Waits for the device. Throws std::runtime_error if that fails.
cublasLtMatmulAlgo_t fastest_algorithm(
    const LtProposals& proposals, const std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&)>& launch,
    cudaStream_t stream);

}  // namespace yoke::compute::cuda
