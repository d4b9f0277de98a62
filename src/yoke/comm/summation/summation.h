// Gradients summed by all machines of a job, also by spare ones that have no gradients (BytePS).
//
// A job has workers, then spare ranks: one communicator of all of them, where all_reduce by `summation` adds
// up what the workers have (plan/summation/shares.h). Worker 0 announces each such operation to the spare
// ranks, which take part until all workers have left.
#pragma once

#include <memory>

#include "yoke/comm/communicator.h"

namespace yoke::comm {

// A communicator of the workers. Sums and means of at least kSummedBytes are computed by all ranks of
// `everyone`, of which the last `spares` are spare; everything else by the workers alone. Shapes of summed
// buffers are not compared across ranks, only counts. counters() has the traffic of both.
//
// `everyone` has TcpSetup::spares = `spares` and must outlive the result. Collective over `everyone`: spare
// ranks call sum_for_workers(). Throws CommError.
//
// least_gain > 0: measures a few all-reduces of the workers alone and by summation first, and keeps to the
// workers unless summation is faster by this factor on the slowest worker.
std::unique_ptr<Communicator> make_summing(Communicator& everyone, int spares, double least_gain = 0);

inline constexpr size_t kSummedBytes = 16 << 10;

// The life of a spare rank: sums until worker 0 has left. Throws CommError.
void sum_for_workers(Communicator& everyone);

}  // namespace yoke::comm
