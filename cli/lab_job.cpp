#include "cli/lab_job.h"

#include "cli/idle_keys.h"
#include "cli/run_checks.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

LabJob lab_job(const CommandLine& line, const std::vector<std::string>& words) {
  CommandLine own = parse_command_line(words);
  Configuration configuration;
  configuration.load(own.train.file, own.overrides);
  check_memory(configuration.values);
  check_workers(configuration.values, own.train.nproc);
  refuse_idle_keys(configuration, own.train.nproc, /*tell=*/false);
  LabJob job{configuration.values, parallel::job_of(configuration.values, own.train.nproc, own.words)};
  job.launch.typed = own.typed;
  job.launch.stdout_is_taken = true;
  job.launch.stdout_is_hidden = line.quiet;
  job.launch.rank0_speaks = false;
  return job;
}

}  // namespace yoke::cli
