# libtemper_parquet: the reader of Parquet, beside libtemper_core, which loads it at the first Parquet file. Built where
# the pyarrow package brings Arrow's C++ library: in .deps/arrow (tools/setup.sh) or in the Python environment.
set(ARROW_ROOT "" CACHE PATH "The pyarrow package's directory (empty: .deps/arrow/pyarrow, or that of python3)")
set(arrow_root ${ARROW_ROOT})
if(NOT arrow_root AND EXISTS ${CMAKE_SOURCE_DIR}/.deps/arrow/pyarrow)
  set(arrow_root ${CMAKE_SOURCE_DIR}/.deps/arrow/pyarrow)
elseif(NOT arrow_root)
  execute_process(COMMAND python3 -c "import importlib.util as u; print(*u.find_spec('pyarrow').submodule_search_locations)"
    OUTPUT_VARIABLE arrow_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
# The libraries have no name without a version.
file(GLOB arrow_libraries ${arrow_root}/libarrow.so.[0-9]* ${arrow_root}/libparquet.so.[0-9]*)
list(LENGTH arrow_libraries arrow_count)
if(NOT arrow_root OR NOT EXISTS ${arrow_root}/include/parquet/arrow/reader.h OR NOT arrow_count EQUAL 2)
  message(STATUS "Parquet is off: no pyarrow package with Arrow's C++ library (tools/setup.sh brings one)")
  return()
endif()

# Arrow's headers may want a newer compiler, and its libraries another C++ ABI.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_INCLUDES ${arrow_root}/include)
set(CMAKE_REQUIRED_LIBRARIES ${arrow_libraries})
check_cxx_source_compiles("#include <parquet/arrow/reader.h>
  int main() { return !parquet::arrow::FileReaderBuilder().OpenFile(std::string()).ok(); }" TEMPER_ARROW_LINKS)
unset(CMAKE_REQUIRED_INCLUDES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT TEMPER_ARROW_LINKS)
  message(STATUS "Parquet is off: ${arrow_root} does not compile or link here")
  return()
endif()

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/temper/data/read/parquet/*.cpp)
add_library(temper_parquet SHARED ${sources})
target_include_directories(temper_parquet PRIVATE ${CMAKE_SOURCE_DIR})
target_include_directories(temper_parquet SYSTEM PRIVATE ${arrow_root}/include)
target_link_libraries(temper_parquet PRIVATE ${arrow_libraries})
set_target_properties(temper_parquet PROPERTIES INSTALL_RPATH ${arrow_root})
