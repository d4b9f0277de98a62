#include "yoke/cluster/identity.h"

#include <gmock/gmock.h>

#include <map>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Table = std::map<std::string, std::string>;

Identity identify_in(const Table& table) {
  return identify([&](const std::string& name) -> std::optional<std::string> {
    auto found = table.find(name);
    return found == table.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Table& table) {
  try {
    identify_in(table);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

Table with(Table table, const Table& more) {
  for (const auto& [name, value] : more) table[name] = value;
  return table;
}

const SeenVariable* seen(const Identity& self, const std::string& name) {
  for (const SeenVariable& variable : self.variables) {
    if (variable.name == name) return &variable;
  }
  return nullptr;
}

const Table kTorchrun = {{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"GROUP_RANK", "1"},
                         {"GROUP_WORLD_SIZE", "2"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "node0"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RUN_ID", "x"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Table kLocalTorchrun =
    with(kTorchrun,
         {{"LOCAL_WORLD_SIZE", "8"}, {"LOCAL_RANK", "5"}, {"GROUP_RANK", "0"}, {"GROUP_WORLD_SIZE", "1"}});
const Table kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"OMPI_COMM_WORLD_NODE_RANK", "3"},
                        {"PMIX_NAMESPACE", "77"},
                        {"PMIX_RANK", "1"}};
const Table kMpich = {
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}};
const Table kSlurm = {{"SLURM_JOB_ID", "4711"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "9"},
                      {"SLURM_STEP_NUM_TASKS", "11"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NODEID", "2"},
                      {"SLURM_NTASKS", "11"},
                      {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                      {"SLURM_STEP_NODELIST", "gnode[10,20-21]"}};
const Table kYoke = {{"YOKE_RANK", "1"},       {"YOKE_WORLD_SIZE", "2"},
                     {"YOKE_LOCAL_RANK", "1"}, {"YOKE_LOCAL_WORLD_SIZE", "2"},
                     {"YOKE_NODE_RANK", "0"},  {"YOKE_COORDINATOR", "unix:@j"},
                     {"YOKE_JOB_ID", "j1"},    {"YOKE_GENERATION", "3"},
                     {"YOKE_JOB_KEY", "abc"},  {"RANK", "1"},
                     {"WORLD_SIZE", "2"},      {"GROUP_WORLD_SIZE", "1"}};

TEST(Identity, NothingSetIsAWorldOfOne) {
  Identity self = identify_in({});
  EXPECT_EQ(self.source, "none");
  EXPECT_EQ(self.world_size, 1);
  EXPECT_EQ(self.endpoint, "");
  EXPECT_FALSE(self.hosts_coordinator);
}

TEST(Identity, EmptyVariablesCountAsUnset) {
  EXPECT_EQ(identify_in({{"RANK", ""}, {"WORLD_SIZE", ""}}).source, "none");
}

TEST(Identity, OwnLauncherComesFirstAndEqualVariablesAreQuiet) {
  Identity self = identify_in(kYoke);
  EXPECT_EQ(self.source, "yoke");
  EXPECT_EQ(self.rank, 1);
  EXPECT_EQ(self.world_size, 2);
  EXPECT_EQ(self.generation, 3);
  EXPECT_EQ(self.job_id, "j1");
  EXPECT_EQ(self.endpoint, "unix:@j");
  EXPECT_FALSE(self.hosts_coordinator);
  EXPECT_FALSE(seen(self, "RANK")->used);
}

TEST(Identity, OneRankOfALauncherKnowsWhereOthersMayJoin) {
  Table one = kYoke;
  for (const char* name : {"YOKE_RANK", "YOKE_LOCAL_RANK", "RANK"}) one[name] = "0";
  for (const char* name : {"YOKE_WORLD_SIZE", "YOKE_LOCAL_WORLD_SIZE", "WORLD_SIZE"}) one[name] = "1";
  EXPECT_EQ(identify_in(one).endpoint, "unix:@j");
  EXPECT_FALSE(identify_in(one).hosts_coordinator);
  one.erase("YOKE_COORDINATOR");
  EXPECT_EQ(identify_in(one).endpoint, "");
  EXPECT_EQ(identify_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"YOKE_COORDINATOR", "unix:@j"}}).endpoint, "");
}

TEST(Identity, TheKeyIsNeverShown) {
  Identity self = identify_in(kYoke);
  EXPECT_EQ(seen(self, "YOKE_JOB_KEY")->value, "(hidden)");
  for (const SeenVariable& variable : self.variables) EXPECT_NE(variable.value, "abc");
}

TEST(Identity, TorchrunOnOneMachineMeetsAtAUnixName) {
  Identity self = identify_in(kLocalTorchrun);
  EXPECT_EQ(self.source, "torchrun");
  EXPECT_EQ(self.rank, 5);
  EXPECT_EQ(self.generation, 2);
  EXPECT_THAT(self.endpoint, StartsWith("unix:@yoke-"));
  Identity zero = identify_in(with(kLocalTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}}));
  EXPECT_EQ(zero.endpoint, self.endpoint);
  EXPECT_EQ(zero.job_id, self.job_id);
  EXPECT_TRUE(zero.hosts_coordinator);
  EXPECT_FALSE(self.hosts_coordinator);
}

TEST(Identity, OtherJobsAndRestartsMeetElsewhere) {
  std::string here = identify_in(kLocalTorchrun).endpoint;
  EXPECT_NE(identify_in(with(kLocalTorchrun, {{"TORCHELASTIC_RUN_ID", "y"}})).endpoint, here);
  EXPECT_NE(identify_in(with(kLocalTorchrun, {{"MASTER_PORT", "29501"}})).endpoint, here);
  EXPECT_NE(identify_in(with(kLocalTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).endpoint, here);
}

TEST(Identity, TorchrunOverSeveralMachinesGetsThePortBesideMasterPort) {
  Identity self = identify_in(kTorchrun);
  EXPECT_EQ(self.endpoint, "node0:29501");
  EXPECT_EQ(self.node_rank, 1);
  EXPECT_THAT(seen(self, "MASTER_PORT")->why, HasSubstr("29501"));
  EXPECT_EQ(identify_in(with(kTorchrun, {{"MASTER_PORT", "65535"}})).endpoint, "node0:65534");
  EXPECT_EQ(identify_in(with(kTorchrun, {{"MASTER_ADDR", "fd00::1"}})).endpoint, "[fd00::1]:29501");
}

TEST(Identity, VirtualLocalRankIsNoConflictAndNoKey) {
  Identity self = identify_in(with(kLocalTorchrun, {{"LOCAL_RANK", "0"}}));
  EXPECT_EQ(self.local_rank, 0);
  EXPECT_EQ(self.endpoint, identify_in(kLocalTorchrun).endpoint);
}

TEST(Identity, KubeflowPodsWithoutLocalVariablesAreOneRankAMachine) {
  Identity self = identify_in(
      {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}});
  EXPECT_EQ(self.source, "torchrun");
  EXPECT_EQ(self.local_world_size, 1);
  EXPECT_EQ(self.node_rank, 2);
  EXPECT_EQ(self.endpoint, "job-master-0:23457");
}

TEST(Identity, TorchrunWithoutAddressSaysWhatToSet) {
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("YOKE_COORDINATOR=HOST:PORT"));
}

TEST(Identity, OpenMpiOnOneMachine) {
  Identity self = identify_in(kOpenMpi);
  EXPECT_EQ(self.source, "openmpi");
  EXPECT_EQ(self.rank, 1);
  EXPECT_EQ(self.node_rank, 0);  // OMPI_COMM_WORLD_NODE_RANK counts processes
  EXPECT_FALSE(seen(self, "OMPI_COMM_WORLD_NODE_RANK")->used);
  EXPECT_THAT(self.endpoint, StartsWith("unix:@yoke-"));
}

TEST(Identity, MpiOverSeveralMachinesNeedsACoordinator) {
  Table table = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_THAT(refusal(table), HasSubstr("mpirun -x YOKE_COORDINATOR=HOST:PORT"));
  Identity self = identify_in(with(table, {{"YOKE_COORDINATOR", "head:4000"}}));
  EXPECT_EQ(self.endpoint, "head:4000");
  EXPECT_TRUE(seen(self, "YOKE_COORDINATOR")->used);
  EXPECT_THAT(refusal(with(kMpich, {{"MPI_LOCALNRANKS", "3"}})), HasSubstr("-genv YOKE_COORDINATOR"));
}

TEST(Identity, MpichOnOneMachine) {
  Identity self = identify_in(kMpich);
  EXPECT_EQ(self.source, "mpich");
  EXPECT_EQ(self.rank, 2);
  EXPECT_THAT(self.endpoint, StartsWith("unix:@yoke-"));
}

TEST(Identity, SlurmReadsUnequalTasksAndTheFirstHost) {
  Identity self = identify_in(kSlurm);
  EXPECT_EQ(self.source, "slurm");
  EXPECT_EQ(self.rank, 9);
  EXPECT_EQ(self.world_size, 11);
  EXPECT_EQ(self.local_world_size, 3);
  EXPECT_EQ(self.node_rank, 2);
  EXPECT_THAT(self.endpoint, testing::MatchesRegex("gnode10:2[0-9]{4}"));
  EXPECT_NE(identify_in(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).endpoint, self.endpoint);
}

TEST(Identity, SbatchWithoutSrunIsNamed) {
  Table batch = {{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}};
  EXPECT_THAT(refusal(batch), HasSubstr("Start with srun"));
  EXPECT_THAT(refusal(with(batch, {{"SLURM_STEP_ID", "4294967291"}})), HasSubstr("Start with srun"));
  EXPECT_EQ(identify_in(with(batch, {{"SLURM_NTASKS", "1"}})).source, "none");
}

TEST(Identity, ExportedWorldSizeUnderSrunIsNoTorchrun) {
  Identity self =
      identify_in(with(kSlurm, {{"WORLD_SIZE", "11"}, {"MASTER_ADDR", "gnode10"}, {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(self.source, "slurm");
  EXPECT_THAT(refusal(with(kSlurm, {{"WORLD_SIZE", "12"}})), HasSubstr("torchrun says WORLD_SIZE=12"));
}

TEST(Identity, SrunWithPmiTakesTheMachineFromSlurm) {
  Identity self = identify_in(with(kSlurm, {{"PMI_RANK", "9"}, {"PMI_SIZE", "11"}, {"PMIX_RANK", "9"}}));
  EXPECT_EQ(self.source, "mpich");
  EXPECT_EQ(self.local_world_size, 3);
  EXPECT_EQ(self.endpoint, identify_in(kSlurm).endpoint);
}

TEST(Identity, OtherPmixNeedsTheWorldSize) {
  EXPECT_THAT(refusal({{"PMIX_RANK", "1"}}), HasSubstr("YOKE_WORLD_SIZE"));
  Identity self =
      identify_in({{"PMIX_RANK", "1"}, {"YOKE_WORLD_SIZE", "2"}, {"YOKE_COORDINATOR", "unix:@x"}});
  EXPECT_EQ(self.source, "pmix");
  EXPECT_EQ(self.local_world_size, 2);
}

TEST(Identity, KubernetesIndexedJob) {
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "3"}}), HasSubstr("YOKE_WORLD_SIZE"));
  Identity self = identify_in(
      {{"JOB_COMPLETION_INDEX", "3"}, {"YOKE_WORLD_SIZE", "4"}, {"YOKE_COORDINATOR", "p-0.s:29400"}});
  EXPECT_EQ(self.source, "kubernetes");
  EXPECT_EQ(self.rank, 3);
  EXPECT_EQ(self.node_rank, 3);
  EXPECT_EQ(self.endpoint, "p-0.s:29400");
  EXPECT_EQ(identify_in({{"JOB_COMPLETION_INDEX", "3"}, {"YOKE_WORLD_SIZE", "1"}}).rank, 0);
}

TEST(Identity, APodPreparedForALauncherSaysSo) {
  EXPECT_THAT(refusal({{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}, {"JOB_COMPLETION_INDEX", "0"}}),
              HasSubstr("yoke run"));
  EXPECT_EQ(identify_in(with(kTorchrun, {{"PET_NNODES", "2"}})).source, "torchrun");
}

TEST(Identity, ConflictsPrintBothSides) {
  std::string text = refusal(with(
      kLocalTorchrun,
      {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_THAT(text, HasSubstr("RANK=5 WORLD_SIZE=8"));
  EXPECT_THAT(text, HasSubstr("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"));
  EXPECT_THAT(refusal(with(kYoke, {{"RANK", "0"}})), HasSubstr("YOKE_RANK=1"));
}

TEST(Identity, ALauncherStartedByAnotherIsNoConflict) {
  // srun --ntasks-per-node=1 torchrun: torchrun's machines need not be in Slurm's order.
  Table outer = {{"SLURM_JOB_ID", "1"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_PROCID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                 {"SLURM_NODEID", "0"},
                 {"SLURM_LOCALID", "0"}};
  Identity self = identify_in(with(outer, kTorchrun));
  EXPECT_EQ(self.source, "torchrun");
  EXPECT_EQ(self.rank, 5);
  EXPECT_THAT(seen(self, "SLURM_PROCID")->why, HasSubstr("numbers launchers"));
  // mpirun in a Slurm job starts its daemons by srun.
  EXPECT_EQ(identify_in(with(outer, kOpenMpi)).source, "openmpi");
  // mpirun -np 1 yoke run: PMIX_RANK is the launcher's.
  EXPECT_EQ(identify_in(with(kYoke, {{"OMPI_COMM_WORLD_RANK", "0"},
                                     {"OMPI_COMM_WORLD_SIZE", "1"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                     {"PMIX_RANK", "0"}}))
                .source,
            "yoke");
  // One launcher in an interactive step.
  EXPECT_EQ(identify_in(with(kYoke, {{"SLURM_JOB_ID", "1"},
                                     {"SLURM_STEP_ID", "0"},
                                     {"SLURM_PROCID", "0"},
                                     {"SLURM_STEP_NUM_TASKS", "1"}}))
                .source,
            "yoke");
}

TEST(Identity, NumbersOutOfRangeAreNamed) {
  EXPECT_THAT(refusal(with(kLocalTorchrun, {{"RANK", "8"}})),
              HasSubstr("RANK=8 is not a rank of WORLD_SIZE=8"));
  EXPECT_THAT(refusal(with(kLocalTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK=-1"));
  EXPECT_THAT(refusal(with(kLocalTorchrun, {{"WORLD_SIZE", "many"}})), HasSubstr("WORLD_SIZE=many"));
  EXPECT_THAT(refusal(with(kLocalTorchrun, {{"LOCAL_RANK", "8"}})), HasSubstr("local rank 8 of 8"));
  EXPECT_THAT(refusal(with(kLocalTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})), HasSubstr("local rank"));
  EXPECT_THAT(refusal({{"YOKE_RANK", "0"}}), HasSubstr("YOKE_WORLD_SIZE is not"));
  EXPECT_THAT(refusal({{"YOKE_WORLD_SIZE", "2"}}), HasSubstr("YOKE_RANK is not"));
  EXPECT_THAT(refusal({{"RANK", "1"}}), HasSubstr("WORLD_SIZE is not"));
}

TEST(Identity, RanksStartedByHandMeetWhereTold) {
  Identity self =
      identify_in({{"YOKE_RANK", "0"}, {"YOKE_WORLD_SIZE", "2"}, {"YOKE_COORDINATOR", "unix:@hand"}});
  EXPECT_TRUE(self.hosts_coordinator);
  EXPECT_EQ(self.local_world_size, 2);
  EXPECT_THAT(refusal({{"YOKE_RANK", "0"}, {"YOKE_WORLD_SIZE", "2"}}), HasSubstr("YOKE_COORDINATOR"));
}

}  // namespace
}  // namespace yoke::cluster
