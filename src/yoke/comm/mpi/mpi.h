// Backend over MPI, for clusters whose network is only supported by MPI.
//
// Open MPI and MPICH (with MVAPICH2 and Intel MPI) have different ABIs. Each has its own module
// (libyoke_mpi_openmpi.so, libyoke_mpi_mpich.so), built if its compiler wrapper or pkg-config file is found
// and loaded at run time.
//
// Collectives are non-blocking and polled, so that deadlines and failures of the job are noticed; MPI_Abort
// is never called. MPI is initialised once per process and finalised at normal exit (not after a failure: the
// launcher then ends the job).
#pragma once

#include <memory>
#include <string>

#include "yoke/cluster/failure.h"
#include "yoke/comm/backend.h"

namespace yoke::comm {

struct MpiSetup {
  // Launcher of this process: "openmpi" or "mpich" (cluster::Identity::source). Otherwise (Slurm, PMIx, …)
  // the installed module is used; an error if both are installed.
  std::string launcher;
  int rank = 0;
  int size = 1;
  std::shared_ptr<cluster::Failure> failure;
  double timeout = 300;  // seconds for finalising
  std::string folder;    // folder of the modules; empty: the default ones (modules/module.h)
};

// Collective over the job. Throws ConfigError: no module for this MPI (names the package or build option), or
// rank and size of MPI differ from `setup` (not started by its mpirun). Throws CommError if MPI cannot be
// initialised.
std::unique_ptr<Backend> make_mpi_backend(const MpiSetup& setup);

}  // namespace yoke::comm
