#include "yoke/data/formats/images/class_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/data/formats/images/test_pictures.h"

namespace yoke::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> listed(const ClassFolders& folders) {
  std::vector<std::string> lines;
  for (const PictureFile& file : folders.files())
    lines.push_back(folders.classes()[static_cast<size_t>(file.label)] + " " + file.name);
  return lines;
}

std::string folders_error(const PictureFolder& folder, const std::vector<std::string>& names = {"train"}) {
  try {
    ClassFolders(folder.path, names);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ClassFolders, AreSortedByClassAndName) {
  PictureFolder folder;
  folder.write("train/dog/2.png", "d2");
  folder.write("train/dog/1.JPEG", "d1");
  folder.write("train/cat/deep/3.jpg", "c3");
  folder.write("train/cat/notes.txt", "no picture");
  folder.write("train/.hidden/1.jpg", "x");
  folder.write("train/readme.txt", "x");
  const ClassFolders folders(folder.path, {"train"});
  EXPECT_THAT(folders.classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(listed(folders), ElementsAre("cat cat/deep/3.jpg", "dog dog/1.JPEG", "dog dog/2.png"));
  std::string space;
  EXPECT_EQ(folders.read(folders.files()[1], space), "d1");
  EXPECT_THAT(folders.shown(folders.files()[1]), HasSubstr("/train/dog/1.JPEG"));
}

TEST(ClassFolders, ComeFromArchivesToo) {
  PictureFolder folder;
  folder.write("train-000.tar", tar_entry("train/dog/1.jpg", "d1") + tar_entry("notes.txt", "x") + kTarEnd);
  folder.write("train-001.tar", tar_entry("cat/1.jpg", "c1") + tar_entry("dog/2.jpg", "d2") + kTarEnd);
  folder.write("training.tar", "another thing");
  const ClassFolders folders(folder.path, {"train"});
  EXPECT_THAT(listed(folders), ElementsAre("cat cat/1.jpg", "dog train/dog/1.jpg", "dog dog/2.jpg"));
  std::string space;
  EXPECT_EQ(folders.read(folders.files()[2], space), "d2");
  EXPECT_THAT(folders.shown(folders.files()[2]), HasSubstr("train-001.tar: dog/2.jpg"));
}

TEST(ClassFolders, ComeFromAListBesideOneFolderOfPictures) {
  PictureFolder folder;
  folder.write("images/pie/2.jpg", "p2");
  folder.write("images/pie/1.jpg", "p1");
  folder.write("images/cake/3.jpg", "c3");
  folder.write("images/cake/4.jpg", "of the other split");
  folder.write("meta/train.txt", "pie/2\npie/1\ncake/3\n");
  folder.write("meta/test.txt", "cake/4\n");
  const ClassFolders folders(folder.path, {"train"});
  EXPECT_THAT(listed(folders), ElementsAre("cake cake/3.jpg", "pie pie/1.jpg", "pie pie/2.jpg"));
  std::string space;
  EXPECT_EQ(folders.read(folders.files()[2], space), "p2");
  EXPECT_THAT(listed(ClassFolders(folder.path, {"val", "test"})), ElementsAre("cake cake/4.jpg"));
  EXPECT_TRUE(has_pictures(folder.path, {"train"}));
  folder.write("meta/train.txt", "pie/1\n../secret\n");
  EXPECT_THAT(folders_error(folder), HasSubstr("train.txt:2: \"../secret\": expected a class and a picture"));
  folder.write("meta/train.txt", "\n");
  EXPECT_THAT(folders_error(folder), HasSubstr("it names no picture"));
}

TEST(ClassFolders, AreNamedByTheirArchiveWhereEntriesHaveNoFolder) {
  PictureFolder folder;
  folder.write("train/n02.tar", tar_entry("b.jpg", "2") + kTarEnd);
  folder.write("train/n01.tar", tar_entry("a.jpg", "1") + kTarEnd);
  EXPECT_THAT(listed(ClassFolders(folder.path, {"train"})), ElementsAre("n01 a.jpg", "n02 b.jpg"));
  folder.write("val.tar", tar_entry("a.jpg", "1") + kTarEnd);
  EXPECT_THAT(folders_error(folder, {"val"}), AllOf(HasSubstr("val.tar"), HasSubstr("lies in no folder")));
}

TEST(ClassFolders, TakeTheFirstNameThatExists) {
  PictureFolder folder;
  folder.write("test/a/1.jpg", "1");
  EXPECT_EQ(ClassFolders(folder.path, {"val", "test"}).files().size(), 1u);
  EXPECT_TRUE(has_pictures(folder.path, {"val", "test"}));
  EXPECT_FALSE(has_pictures(folder.path, {"train"}));
}

TEST(ClassFolders, SayWhatWasSearched) {
  PictureFolder folder;
  EXPECT_THAT(folders_error(folder),
              AllOf(HasSubstr("/train, "), HasSubstr("train*.tar"), HasSubstr("data.dir")));
  EXPECT_THAT(folders_error(folder, {"val", "test"}), AllOf(HasSubstr("/test"), HasSubstr("train.evaluate")));
}

TEST(ClassFolders, RefuseFoldersWithoutClassesAndClassesWithoutPictures) {
  PictureFolder folder;
  folder.write("train/1.jpg", "1");
  EXPECT_THAT(folders_error(folder), HasSubstr("has no classes"));
  folder.write("train/cat/1.jpg", "1");
  folder.write("train/dog/1.gif", "1");
  EXPECT_THAT(folders_error(folder), AllOf(HasSubstr("train/dog"), HasSubstr("has no .jpg")));
  PictureFolder archives;
  archives.write("train.tar", tar_entry("cat/notes.txt", "1") + kTarEnd);
  EXPECT_THAT(folders_error(archives), HasSubstr("has no classes"));
}

TEST(ClassFolders, RefuseArchivesBesideFolders) {
  PictureFolder folder;
  folder.write("train/cat/1.jpg", "1");
  folder.write("train/dog.tar", kTarEnd);
  EXPECT_THAT(folders_error(folder), AllOf(HasSubstr("cat"), HasSubstr("dog.tar")));
}

TEST(ClassFolders, MustBeTheSameInBothSets) {
  PictureFolder folder;
  for (const char* name : {"train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "val/eel/1.jpg"})
    folder.write(name, "1");
  const ClassFolders training(folder.path, {"train"}), test(folder.path, {"val"});
  EXPECT_NO_THROW(check_same_classes(training, training));
  try {
    check_same_classes(training, test);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("training set: dog."), HasSubstr("test set: eel.")));
  }
}

}  // namespace
}  // namespace yoke::data
