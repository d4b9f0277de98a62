// A list of small tables as one text: [{match = "*.bias", weight_decay = 0}, {match = "fc.*", lr = 0.1}].
//
// A configuration file may write it as an array of tables; command line and environment write the text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::config {

using TableRow = std::vector<std::pair<std::string, Value>>;

struct TableList {
  std::vector<TableRow> rows;
  std::string problem;  // what is accepted instead; empty: none
};

// "" and "[]" have no rows.
TableList parse_tables(std::string_view text);
// A row as a file would hold it: {match = "*.bias", lr = 0.1}.
std::string to_toml(const TableRow& row);

// Sets the fields of one row. Returns "", or what is accepted instead.
std::string set_fields(const Fields& fields, const TableRow& row);

// One `Row` for each table; Row has a describe(). `problem` is set where the text is not accepted.
template <class Row>
std::vector<Row> read_tables(std::string_view text, std::string& problem) {
  TableList list = parse_tables(text);
  problem = list.problem;
  std::vector<Row> rows;
  for (const TableRow& values : list.rows) {
    Fields fields;
    describe(fields, rows.emplace_back());
    if (problem.empty()) problem = set_fields(fields, values);
  }
  return rows;
}

}  // namespace yoke::config
