from bagcert.cli.main import main

main()
