// The page of an experiment: what is asked, figures with what they show, tables, and what failed.
#pragma once

#include <string>
#include <vector>

namespace yoke::report {

struct LabFigure {
  std::string name;     // of its own SVG file, without suffix
  std::string heading;  // plain text, as the others; empty: the picture has its own title
  std::string svg;
  std::string caption = {};
  bool wide = false;  // takes the whole width of the page
};

struct LabTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  // Below it, one entry a line: what the columns mean, and the conditions.
  std::vector<std::string> notes = {};
};

// Sections appear in the order in which they were added. All text is escaped.
class LabPage {
 public:
  std::string title;
  std::string question;  // what the experiment answers
  std::string about;     // its conditions
  std::string command;   // that made it
  std::string result;    // the answer in a sentence

  void section(const std::string& heading);
  void paragraph(const std::string& text);
  void add(LabFigure figure);
  void add(const LabTable& table);

  const std::vector<LabFigure>& figures() const { return figures_; }

  // `failed`: parts that failed or did not run, with the reason.
  std::string html(const std::vector<std::string>& failed) const;

 private:
  void close_grid();

  std::string body_;
  bool in_grid_ = false;
  std::vector<LabFigure> figures_;
};

// A chart as a file of its own, with the colours of the page for light and dark.
std::string standalone_svg(const std::string& svg);

}  // namespace yoke::report
