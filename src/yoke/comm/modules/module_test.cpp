#include "yoke/comm/modules/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "yoke/comm/mpi/mpi.h"
#include "yoke/comm/nccl/nccl.h"

namespace yoke::comm {
namespace {

using testing::HasSubstr;

std::filesystem::path empty_folder(const std::string& name) {
  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("yoke_module_" + name + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

template <class Function>
std::string config_error_of(Function&& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no ConfigError)";
}

TEST(Module, OfAnMpiThatIsNotInstalledNamesPackageAndOption) {
  std::string folder = empty_folder("absent");
  MpiSetup setup{.launcher = "mpich", .folder = folder};
  std::string text = config_error_of([&] { make_mpi_backend(setup); });
  EXPECT_THAT(text, HasSubstr("libyoke_mpi_mpich.so"));
  EXPECT_THAT(text, HasSubstr("libmpich-dev"));
  EXPECT_THAT(text, HasSubstr("YOKE_MPI=ON"));
  setup.launcher = "slurm";
  EXPECT_THAT(config_error_of([&] { make_mpi_backend(setup); }), HasSubstr("no MPI module"));
}

TEST(Module, OfNcclThatIsNotThereNamesPackageAndOption) {
  NcclSetup setup{.put = [](const std::string&, const std::string&, Deadline) {},
                  .get = [](const std::string&, Deadline) { return std::string(); },
                  .folder = empty_folder("absent")};
  std::string text = config_error_of([&] { make_nccl_backend(setup); });
  EXPECT_THAT(text, HasSubstr("libyoke_nccl.so"));
  EXPECT_THAT(text, HasSubstr("YOKE_NCCL=ON"));
}

TEST(Module, TellsTheVersionOfItsLibraryOrHowToGetIt) {
  for (auto [file, name] : {std::pair("libyoke_mpi_openmpi.so", "Open MPI"),
                            {"libyoke_mpi_mpich.so", "MPICH"},
                            {"libyoke_nccl.so", "NCCL"}}) {
    if (find_module(file).empty()) continue;
    EXPECT_THAT(module_version(file, "hint"), HasSubstr(name));
  }
  std::string folder = empty_folder("no_version");
  EXPECT_THAT(config_error_of([&] { module_version("libx.so", "Install x.", folder); }),
              HasSubstr("Install x."));
  std::ofstream(folder + "/libx.so") << "not a library";
  EXPECT_THAT(config_error_of([&] { module_version("libx.so", "Install x.", folder); }),
              HasSubstr("libx.so cannot be loaded"));
}

TEST(Module, OfBothMpisNeedsALauncherThatSaysWhich) {
  std::filesystem::path folder = empty_folder("both");
  for (const char* name : {"libyoke_mpi_openmpi.so", "libyoke_mpi_mpich.so"})
    std::ofstream(folder / name) << "x";
  MpiSetup setup{.launcher = "slurm", .folder = folder};
  EXPECT_THAT(config_error_of([&] { make_mpi_backend(setup); }), HasSubstr("'slurm' does not show"));
}

TEST(Module, ThatIsNoLibraryIsRefusedWithTheLoadersWords) {
  std::filesystem::path folder = empty_folder("broken");
  std::ofstream(folder / "libyoke_mpi_openmpi.so") << "not a library";
  MpiSetup setup{.launcher = "openmpi", .folder = folder};
  std::string text = config_error_of([&] { make_mpi_backend(setup); });
  EXPECT_THAT(text, HasSubstr("cannot be loaded"));
  EXPECT_THAT(text, HasSubstr((folder / "libyoke_mpi_openmpi.so").string()));
}

TEST(Module, OfAnotherBuildIsRefused) {
  // Any library that is none of ours: it has no stamp.
  std::string text =
      config_error_of([] { open_module("libz.so.1", "", "yoke_mpi_backend", "stamp", "hint"); });
  EXPECT_THAT(text, HasSubstr("a different build"));
}

TEST(Module, IsLookedForBesideTheProgramFirst) {
  std::vector<std::filesystem::path> folders = module_folders();
  ASSERT_EQ(folders.size(), 2u);
  EXPECT_EQ(folders[0], std::filesystem::read_symlink("/proc/self/exe").parent_path());
  EXPECT_TRUE(find_module("no such file.so").empty());
}

}  // namespace
}  // namespace yoke::comm
