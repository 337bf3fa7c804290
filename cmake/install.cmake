# cmake --install build --prefix P: the program, the libraries with their headers, and a package that
# find_package(temper) finds. LibTorch stays where it is; the installed files name its place (TORCH_ROOT).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(TEMPER_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/temper)

set(libraries temper_text temper_core)
if(TEMPER_TORCH)
  list(APPEND libraries temper_grammar temper temper_cli)
  set_property(TARGET temper APPEND PROPERTY INTERFACE_LINK_LIBRARIES $<INSTALL_INTERFACE:temper_torch>)
  set_target_properties(temper temper_main PROPERTIES INSTALL_RPATH_USE_LINK_PATH TRUE)
  install(TARGETS temper_main RUNTIME)
endif()
install(TARGETS temper_sandbox RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR})  # started from beside libtemper_core
foreach(plugin ${plugins})
  install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})  # loaded from beside libtemper_core
endforeach()
foreach(library ${libraries})
  target_compile_features(${library} INTERFACE cxx_std_20)
endforeach()
install(TARGETS ${libraries} EXPORT temper LIBRARY ARCHIVE INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT temper NAMESPACE temper:: FILE temperTargets.cmake DESTINATION ${TEMPER_CMAKE_DIR})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/temperConfig.cmake.in ${CMAKE_BINARY_DIR}/temperConfig.cmake
  INSTALL_DESTINATION ${TEMPER_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/temperConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/temperConfig.cmake ${CMAKE_BINARY_DIR}/temperConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/torch.cmake DESTINATION ${TEMPER_CMAKE_DIR})

install(DIRECTORY ${CMAKE_SOURCE_DIR}/temper DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" )
install(FILES LICENSE THIRD_PARTY.md README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY configs examples DESTINATION ${CMAKE_INSTALL_DATADIR}/temper PATTERN __pycache__ EXCLUDE)
