// The ranks of an MPI job, over MPI: for clusters whose fast networks only MPI knows.
//
// Open MPI and MPICH (and what shares MPICH's interface: MVAPICH2, Intel MPI) differ in their binary
// interface: each has a module of its own (libyoke_mpi_openmpi.so, libyoke_mpi_mpich.so), built where its
// compiler wrapper or pkg-config file was found and loaded here at run time.
//
// Non-blocking collectives that are polled, so that deadlines and news of failures are seen; never MPI_Abort.
// MPI is initialised once for the process and finalised when it exits in order (not after a failure: the
// launcher then ends the job).
#pragma once

#include <memory>
#include <string>

#include "yoke/cluster/failure.h"
#include "yoke/comm/backend.h"

namespace yoke::comm {

struct MpiSetup {
  // Who started this process: "openmpi" or "mpich" (cluster::Identity::source). Anything else (Slurm, PMIx,
  // …): the module that is there, an error when both are.
  std::string launcher;
  int rank = 0;
  int size = 1;
  std::shared_ptr<cluster::Failure> failure;
  double timeout = 300;  // seconds for leaving in order
  std::string folder;    // where modules lie; empty: the usual places (modules/module.h)
};

// Collective over the job. Throws ConfigError: no module for this MPI (says which package or build option
// brings it), or MPI sees another world than the setup (the program was not started by its mpirun). Throws
// CommError when MPI cannot be initialised.
std::unique_ptr<Backend> make_mpi_backend(const MpiSetup& setup);

}  // namespace yoke::comm
